// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/parse.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "memoir/plan/random.h"

namespace memoir {
namespace {

using Units = std::int64_t;
using List = std::vector<std::uint32_t>;

constexpr std::size_t kMostOfGroup = 9;  // that share both boundaries: sums of more are not looked at
constexpr int kMostChosen = 5, kMostOfPinwheel = 3;
constexpr std::size_t kMostSums = 4'000'000;  // of sums, at one boundary
constexpr std::size_t kMostAround = 6;        // whose other boundary is looked at again
constexpr double kCertain = -50, kUnlikely = 1e9, kPairBonus = 0.5, kSurelyNoPinwheel = -4, kRival = 3;
constexpr std::size_t kWholeBoundary = 16;
constexpr std::size_t kRoomsSummed = 12;

class Parser {
 public:
  Parser(const Problem& problem, const Sections& sections, const Grid& grid, const ParseOptions& options,
         const SearchLimits& limits, std::uint64_t& work)
      : buffers_(static_cast<std::uint32_t>(problem.size())),
        ends_(sections.count),
        unit_(grid.unit),
        options_(options),
        limits_(limits),
        work_(work),
        last_work_(limits.nodes > ~std::uint64_t{0} - work ? ~std::uint64_t{0} : work + limits.nodes),
        random_(options.seed),
        dying_(ends_ + 1),
        born_(ends_ + 1) {
    std::vector<Units> load(ends_ + 1);  // by differences
    for (std::uint32_t i = 0; i < buffers_; ++i) {
      const auto size = static_cast<Units>(grid.padded(problem[i].size) / unit_);
      add({sections.first[i], sections.last[i], size});
      load[sections.first[i]] += size;
      load[sections.last[i]] -= size;
    }
    std::partial_sum(load.begin(), load.end(), load.begin());
    load.pop_back();
    fill_rooms(load);
  }

  bool run() {
    using Entry = std::tuple<double, std::uint32_t, std::uint32_t>;  // how likely by chance, where, version
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    std::vector<std::uint32_t> version(ends_ + 1);
    std::vector<Join> joins(ends_ + 1);
    const auto look = [&](std::uint32_t at) {
      if (at == 0 || at >= ends_) return;
      ++version[at];
      joins[at] = best_join(at);
      if (joins[at].odds < options_.surest) queue.emplace(joins[at].odds, at, version[at]);
    };
    for (std::uint32_t at = 1; at < ends_; ++at) {
      if (stopped()) return false;
      look(at);
    }
    while (!queue.empty()) {
      if (stopped()) return false;
      const auto [odds, at, seen] = queue.top();
      queue.pop();
      if (seen != version[at]) continue;
      const Join join = joins[at];
      if (join.center != kNone && !still_there(join)) {
        look(at);
        continue;
      }
      for (const std::uint32_t boundary : apply(join, at)) look(boundary);
    }
    return true;
  }

  Bundles result() const {
    Bundles out;
    out.bundle_of.resize(buffers_);
    out.within.resize(buffers_);
    for (std::uint32_t r = 0; r < rectangles_.size(); ++r) {
      if (rectangles_[r].joined) continue;
      const std::size_t before = out.problem.size();
      std::vector<std::pair<std::uint32_t, Units>> open{{r, 0}};
      bool any = false;
      while (!open.empty()) {
        const auto [one, at] = open.back();
        open.pop_back();
        if (one < buffers_) {
          out.bundle_of[one] = static_cast<std::uint32_t>(before);
          out.within[one] = static_cast<Offset>(at) * unit_;
          any = true;
        }
        for (const auto& [inner, above] : rectangles_[one].inside) open.emplace_back(inner, at + above);
      }
      if (!any) continue;  // nothing but free room
      const Rectangle& shape = rectangles_[r];
      out.problem.push_back({{shape.begin, shape.end}, static_cast<Size>(shape.size) * unit_, unit_});
    }
    return out;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Rectangle {
    std::uint32_t begin, end;  // sections
    Units size;
    std::vector<std::pair<std::uint32_t, Units>> inside{};  // and how far above its bottom
    bool joined = false;                                    // is inside another
  };
  struct Sum {
    Units bytes;
    std::uint32_t set, group;
    int count;
  };
  struct Join {
    double odds = kUnlikely;
    List before{}, after{};        // what dies, and what is born in its place
    std::uint32_t center = kNone;  // of a pinwheel, whose 4 and 3 those are; else none
    List below{}, above{};         // its 1 and 2
  };

  bool stopped() const {
    if (work_ >= last_work_) return true;
    return (limits_.stop && limits_.stop->load(std::memory_order_relaxed)) ||
           (limits_.enough && limits_.enough->load(std::memory_order_relaxed)) ||
           std::chrono::steady_clock::now() >= limits_.deadline;
  }

  std::uint32_t add(Rectangle rectangle) {
    const auto r = static_cast<std::uint32_t>(rectangles_.size());
    born_[rectangle.begin].push_back(r);
    dying_[rectangle.end].push_back(r);
    rectangles_.push_back(std::move(rectangle));
    return r;
  }
  void remove(std::uint32_t r) {
    std::erase(born_[rectangles_[r].begin], r);
    std::erase(dying_[rectangles_[r].end], r);
    rectangles_[r].joined = true;
  }

  // --- free room ---

  // What the sections lack of the fullest one, as rectangles: each opens where the load falls and closes
  // where it rises by as much, if it can.
  void fill_rooms(const std::vector<Units>& load) {
    const Units full = load.empty() ? 0 : *std::max_element(load.begin(), load.end());
    std::vector<std::pair<std::uint32_t, Units>> open;  // since when, and how much
    const auto close = [&](std::size_t k, std::uint32_t at) {
      add({open[k].first, at, open[k].second});
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
    };
    Units before = 0;
    for (std::uint32_t s = 0; s <= ends_; ++s) {
      const Units room = s < ends_ ? full - load[s] : 0;
      const Units more = room - before;
      before = room;
      if (more > 0) open.emplace_back(s, more);
      if (more < 0) close_rooms(open, s, -more, close);
    }
  }

  template <class Close>
  void close_rooms(std::vector<std::pair<std::uint32_t, Units>>& open, std::uint32_t at, Units bytes,
                   const Close& close) {
    for (std::size_t k = 0; k < open.size(); ++k) {
      if (open[k].second == bytes) return close(k, at);
    }
    const std::size_t count = std::min(open.size(), kRoomsSummed);
    for (std::uint32_t set = 1; set < (1u << count); ++set) {
      Units sum = 0;
      for (std::size_t k = 0; k < count; ++k) sum += (set >> k & 1) != 0 ? open[k].second : 0;
      if (sum != bytes) continue;
      for (std::size_t k = count; k-- > 0;) {
        if ((set >> k & 1) != 0) close(k, at);
      }
      return;
    }
    while (bytes > 0) {
      const auto largest = std::max_element(open.begin(), open.end(),
                                            [](const auto& a, const auto& b) { return a.second < b.second; });
      const auto [since, size] = *largest;
      close(static_cast<std::size_t>(largest - open.begin()), at);
      if (size > bytes) {  // it is cut in two
        rectangles_.back().size = bytes;
        open.emplace_back(since, size - bytes);
      }
      bytes -= std::min(bytes, size);
    }
  }

  // --- what can be joined at a boundary ---

  // By their other boundary.
  std::vector<List> groups(const List& list, bool die) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> sorted;
    for (const std::uint32_t r : list)
      sorted.emplace_back(die ? rectangles_[r].begin : rectangles_[r].end, r);
    std::sort(sorted.begin(), sorted.end());
    std::vector<List> groups;
    for (std::size_t k = 0; k < sorted.size(); ++k) {
      if (k == 0 || sorted[k].first != sorted[k - 1].first) groups.emplace_back();
      groups.back().push_back(sorted[k].second);
    }
    for (List& group : groups) {
      if (group.size() <= kMostOfGroup) continue;
      for (std::size_t k = group.size() - 1; k > 0; --k) std::swap(group[k], group[random_.below(k + 1)]);
      group.resize(kMostOfGroup);
    }
    return groups;
  }

  std::vector<Sum> sums(const std::vector<List>& groups, int most) const {
    std::vector<Sum> sums;
    std::array<Units, 1u << kMostOfGroup> bytes;
    bytes[0] = 0;
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      for (std::uint32_t set = 1; set < (1u << groups[g].size()); ++set) {
        const auto lowest = static_cast<std::size_t>(std::countr_zero(set));
        bytes[set] = bytes[set & (set - 1)] + rectangles_[groups[g][lowest]].size;
        const int count = std::popcount(set);
        if (count <= most) sums.push_back({bytes[set], set, g, count});
      }
    }
    return sums;
  }
  Units bytes_of(const List& list, std::uint32_t set = ~0u) const {
    Units bytes = 0;
    for (std::size_t k = 0; k < list.size(); ++k)
      bytes += (set >> k & 1) != 0 ? rectangles_[list[k]].size : 0;
    return bytes;
  }
  static List chosen(const List& list, std::uint32_t set) {
    List out;
    for (std::size_t k = 0; k < list.size(); ++k) {
      if ((set >> k & 1) != 0) out.push_back(list[k]);
    }
    return out;
  }

  Join best_join(std::uint32_t at) {
    Join best;
    if (dying_[at].empty() || born_[at].empty()) return best;
    const std::vector<List> before = groups(dying_[at], true), after = groups(born_[at], false);
    if (is_whole(before, after)) return {kCertain, before[0], after[0]};
    std::vector<Sum> a = sums(before, kMostChosen), b = sums(after, kMostChosen);
    work_ += 1 + (a.size() + b.size()) / 64;
    if (a.size() * b.size() > kMostSums) return best;
    join_equal(before, after, a, b, best);
    if (best.odds > kSurelyNoPinwheel) {
      for (const std::uint32_t center : born_[at]) join_pinwheel(before, after, center, best);
    }
    return best;
  }

  // All that die here make room for all that are born, and nothing less does.
  bool is_whole(const std::vector<List>& before, const std::vector<List>& after) const {
    if (before.size() != 1 || after.size() != 1 || before[0].size() + after[0].size() > kWholeBoundary ||
        bytes_of(before[0]) != bytes_of(after[0]))
      return false;
    const Units all = bytes_of(before[0]);
    if (before[0].size() == kMostOfGroup || after[0].size() == kMostOfGroup) return false;  // perhaps not all
    std::vector<Units> parts;
    for (const Sum& sum : sums(before, kMostOfGroup)) parts.push_back(sum.bytes);
    std::sort(parts.begin(), parts.end());
    for (const Sum& sum : sums(after, kMostOfGroup)) {
      if (sum.bytes != all && std::binary_search(parts.begin(), parts.end(), sum.bytes)) return false;
    }
    return true;
  }

  double noise() { return options_.noise > 0 ? options_.noise * random_.normal() : 0; }

  // Some that die and some that are born, of one group each, with equal sums.
  void join_equal(const std::vector<List>& before, const std::vector<List>& after, const std::vector<Sum>& a,
                  std::vector<Sum>& b, Join& best) {
    // In how many ways as many could be chosen, or fewer.
    std::array<double, kMostChosen + 1> of_a{}, of_b{};
    std::array<double, 2 * kMostChosen + 1> ways{};
    for (const Sum& sum : a) ++of_a[static_cast<std::size_t>(sum.count)];
    for (const Sum& sum : b) ++of_b[static_cast<std::size_t>(sum.count)];
    for (std::size_t i = 1; i <= kMostChosen; ++i) {
      for (std::size_t j = 1; j <= kMostChosen; ++j) ways[i + j] += of_a[i] * of_b[j];
    }
    for (std::size_t k = 1; k < ways.size(); ++k) ways[k] += ways[k - 1];
    std::sort(b.begin(), b.end(), [](const Sum& x, const Sum& y) { return x.bytes < y.bytes; });
    struct Hit {
      double odds;
      const Sum *a, *b;
    };
    std::vector<Hit> hits;
    for (const Sum& sum : a) {
      auto other = std::lower_bound(b.begin(), b.end(), sum.bytes,
                                    [](const Sum& x, Units bytes) { return x.bytes < bytes; });
      for (; other != b.end() && other->bytes == sum.bytes; ++other) {
        double odds = std::log(std::max(1.0, ways[static_cast<std::size_t>(sum.count + other->count)])) -
                      std::log(static_cast<double>(sum.bytes)) + noise();
        if (sum.count == 1 && other->count == 1) odds -= kPairBonus;
        hits.push_back({odds, &sum, &*other});
      }
    }
    if (hits.empty()) return;
    const Hit& surest = *std::min_element(hits.begin(), hits.end(),
                                          [](const Hit& x, const Hit& y) { return x.odds < y.odds; });
    int rivals = 0;
    for (const Hit& hit : hits) {
      const bool meets = (hit.a->group == surest.a->group && (hit.a->set & surest.a->set) != 0) ||
                         (hit.b->group == surest.b->group && (hit.b->set & surest.b->set) != 0);
      rivals += &hit != &surest && hit.odds < surest.odds + kRival && meets;
    }
    const double odds = surest.odds + options_.rivals * std::log1p(rivals);
    if (odds >= best.odds) return;
    best = {odds, chosen(before[surest.a->group], surest.a->set),
            chosen(after[surest.b->group], surest.b->set)};
  }

  // 4 dies where the center and 3 are born, 1 and the center die where 2 is born; 4 and 1 are born together,
  // 3 and 2 die together.
  void join_pinwheel(const std::vector<List>& before, const std::vector<List>& after, std::uint32_t center,
                     Join& best) {
    const std::uint32_t until = rectangles_[center].end;
    const Units size = rectangles_[center].size;
    if (until >= ends_) return;
    for (const List& fours : before) {
      List ones;
      for (const std::uint32_t r : dying_[until]) {
        if (rectangles_[r].begin == rectangles_[fours[0]].begin && r != center && ones.size() < kMostChosen)
          ones.push_back(r);
      }
      if (ones.empty()) continue;
      const std::vector<Sum> four = sums({fours}, kMostOfPinwheel), one = sums({ones}, kMostOfPinwheel);
      for (const List& threes : after) {
        if (rectangles_[threes[0]].end <= until) continue;
        List twos;
        for (const std::uint32_t r : born_[until]) {
          if (rectangles_[r].end == rectangles_[threes[0]].end && twos.size() < kMostChosen)
            twos.push_back(r);
        }
        if (twos.empty()) continue;
        const std::vector<Sum> three = sums({threes}, kMostOfPinwheel), two = sums({twos}, kMostOfPinwheel);
        work_ += 1 + (four.size() + three.size() + one.size() + two.size()) / 64;
        const auto left = larger_by(four, three, size), right = larger_by(two, one, size);
        if (!left.first || !right.first) continue;
        const double choices =
            static_cast<double>(before.size() * after.size() * born_[rectangles_[center].begin].size());
        const double odds = std::log(static_cast<double>(four.size() * three.size()) * choices) -
                            std::log(static_cast<double>(left.first->bytes)) +
                            std::log(static_cast<double>(one.size() * two.size())) -
                            std::log(static_cast<double>(right.first->bytes)) + noise();
        if (odds >= best.odds) continue;
        best = {odds,   chosen(fours, left.first->set),  chosen(threes, left.second->set),
                center, chosen(ones, right.second->set), chosen(twos, right.first->set)};
      }
    }
  }

  // Two sums with that difference, of as few as can be.
  static std::pair<const Sum*, const Sum*> larger_by(const std::vector<Sum>& larger,
                                                     const std::vector<Sum>& smaller, Units difference) {
    std::unordered_map<Units, const Sum*> by_bytes;
    for (const Sum& sum : smaller) {
      const Sum*& known = by_bytes[sum.bytes];
      if (known == nullptr || sum.count < known->count) known = &sum;
    }
    std::pair<const Sum*, const Sum*> found{nullptr, nullptr};
    for (const Sum& sum : larger) {
      const auto it = by_bytes.find(sum.bytes - difference);
      if (it == by_bytes.end()) continue;
      if (!found.first || sum.count + it->second->count < found.first->count + found.second->count)
        found = {&sum, it->second};
    }
    return found;
  }

  // --- joining ---

  bool still_there(const Join& join) const {
    const auto all = [&](const List& list) {
      return std::none_of(list.begin(), list.end(), [&](auto r) { return rectangles_[r].joined; });
    };
    return !rectangles_[join.center].joined && all(join.before) && all(join.after) && all(join.below) &&
           all(join.above);
  }

  // Puts them into `whole`, one on the other, from `bottom` up; the top.
  Units stack(const List& list, Units bottom, Rectangle& whole) {
    for (const std::uint32_t r : list) {
      whole.inside.emplace_back(r, bottom);
      bottom += rectangles_[r].size;
    }
    return bottom;
  }

  // The boundaries that look different now.
  List apply(const Join& join, std::uint32_t at) {
    const std::uint32_t begin = rectangles_[join.before[0]].begin, end = rectangles_[join.after[0]].end;
    List touched{at, begin, end};
    Rectangle whole{begin, end, 0};
    if (join.center == kNone) {
      whole.size = stack(join.before, 0, whole);
      stack(join.after, 0, whole);
    } else {
      touched.push_back(rectangles_[join.center].end);
      const Units one = stack(join.below, 0, whole);
      whole.size = stack(join.before, one, whole);
      const Units center = stack({join.center}, one, whole);
      stack(join.after, center, whole);
      stack(join.above, 0, whole);
    }
    for (const auto& [r, bottom] : whole.inside) remove(r);
    add(std::move(whole));
    List around;
    for (const std::uint32_t boundary : touched) {
      if (boundary == 0 || boundary >= ends_ || dying_[boundary].size() > kMostAround) continue;
      for (const std::uint32_t r : dying_[boundary]) around.push_back(rectangles_[r].begin);
    }
    touched.insert(touched.end(), around.begin(), around.end());
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    return touched;
  }

  const std::uint32_t buffers_, ends_;
  const Size unit_;
  const ParseOptions options_;
  const SearchLimits& limits_;
  std::uint64_t& work_;
  const std::uint64_t last_work_;
  Random random_;
  std::vector<Rectangle> rectangles_;  // the buffers, free room, and what was joined
  std::vector<List> dying_, born_;     // at each boundary of sections
};

}  // namespace

Bundles parse(const Problem& problem, const Sections& sections, const Grid& grid, const ParseOptions& options,
              const SearchLimits& limits, std::uint64_t& work) {
  Parser parser(problem, sections, grid, options, limits, work);
  return parser.run() ? parser.result() : Bundles{};
}

}  // namespace memoir
