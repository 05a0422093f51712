// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/core_first.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/random.h"
#include "memoir/plan/search/exact/decompose.h"

namespace memoir {
namespace {

constexpr int kMostRepairs = 300;
constexpr std::size_t kLargestRetried = 20'000;  // buffers of a piece: a try should cost a part of a second

// How a piece is tried again, by turns. What none of these packs takes noise and more patience with what
// overflows: kFewRepairs comparisons a buffer take about as long as one fit.
struct Retry {
  double threshold;
  Fit fit;
};
constexpr Retry kRetries[] = {{0.95, Fit::kFirst}, {0.93, Fit::kBest}, {0.97, Fit::kFirst}, {0.9, Fit::kBest},
                              {0.99, Fit::kFirst}, {0.95, Fit::kBest}, {0.97, Fit::kBest}};
constexpr std::uint64_t kFewRepairs = 200, kManyRepairs = 1000;

class CoreFirst {
 public:
  /// `stretches`: nullptr where no buffer has a gap.
  CoreFirst(const Problem& problem, const Stretches* stretches, const Sections& sections, Size target,
            const CoreFirstOptions& options, const SearchLimits& limits, std::uint64_t& work)
      : problem_(problem),
        stretches_(stretches),
        sections_(sections),
        target_(target),
        options_(options),
        limits_(limits),
        work_(work),
        last_work_(limits.nodes > ~std::uint64_t{0} - work ? ~std::uint64_t{0} : work + limits.nodes),
        index_(stretches ? stretches->pieces : problem, sections),
        moved_(problem.size()) {
    if (!stretches) return;
    for (std::uint32_t k = 0; k < stretches->obstacles.size(); ++k)
      index_.insert(stretches->first_obstacle() + k, stretches->obstacles[k]);
  }

  std::vector<Offset> run() {
    find_fullest();
    std::vector<std::uint32_t> all(problem_.size());
    std::iota(all.begin(), all.end(), 0u);
    std::stable_sort(all.begin(), all.end(), [&](auto a, auto b) { return first(a) < first(b); });
    bool packed = true;
    place_core(all, options_.threshold, packed);
    std::vector<std::uint32_t> over;
    std::uint64_t placed = 0;
    // Where buffers live long, or the best gap is asked for, the index of gaps answers faster than a look at
    // all neighbours.
    std::optional<GapIndex> gaps;
    if (!stretches_ && (options_.fit == Fit::kBest || lives_long(sections_))) {
      gaps.emplace(problem_);
      for (const std::uint32_t i : all) {
        if (contains(i)) gaps->place(i, offset_of(i));
      }
    }
    for (const std::uint32_t i : order_of_rest()) {
      if (contains(i)) continue;
      if ((++placed & 1023) == 0 && (is_called_off() || (!options_.must_answer && stopped()))) return {};
      const Offset offset = gaps ? gaps->find(i, options_.fit) : fit(i, options_.fit);
      if (gaps) gaps->place(i, offset);
      put(i, offset, over);
    }
    std::vector<Offset> best = offsets();
    if (over.empty() || !packed) return best;
    for (int repair = 0; repair < kMostRepairs && !over.empty() &&
                         effort_ < options_.repair_effort * problem_.size() && !stopped();
         ++repair) {
      const std::uint32_t worst = over.back();
      over.pop_back();
      if (top(worst) > target_) eject(worst, over);
    }
    std::vector<Offset> repaired = offsets();
    return arena_size(problem_, repaired) < arena_size(problem_, best) ? repaired : best;
  }

 private:
  // --- one buffer, whose pieces all lie at one offset ---

  std::uint32_t begin(std::uint32_t i) const { return stretches_ ? stretches_->begin[i] : i; }
  std::uint32_t end(std::uint32_t i) const { return stretches_ ? stretches_->begin[i + 1] : i + 1; }
  std::uint32_t first(std::uint32_t i) const { return sections_.first[begin(i)]; }
  std::uint32_t last(std::uint32_t i) const { return sections_.last[end(i) - 1]; }
  std::uint32_t length(std::uint32_t i) const {
    std::uint32_t sections = 0;
    for (std::uint32_t p = begin(i); p < end(i); ++p) sections += sections_.last[p] - sections_.first[p];
    return sections;
  }
  bool contains(std::uint32_t i) const { return index_.contains(begin(i)); }
  Offset offset_of(std::uint32_t i) const { return index_.offset_of(begin(i)); }
  Offset top(std::uint32_t i) const { return offset_of(i) + problem_[i].size; }
  void insert(std::uint32_t i, Offset offset) {
    for (std::uint32_t p = begin(i); p < end(i); ++p) index_.insert(p, offset);
  }
  void erase(std::uint32_t i) {
    for (std::uint32_t p = begin(i); p < end(i); ++p) index_.erase(p);
  }
  // Calls visit(other, begin, end), for some more than once; other is kNobody for an obstacle.
  template <class Visit>
  void each_neighbour(std::uint32_t i, Visit&& visit) const {
    for (std::uint32_t p = begin(i); p < end(i); ++p) {
      index_.each_neighbour(p, [&](std::uint32_t q, Offset low, Offset high) {
        visit(stretches_ ? stretches_->owner[q] : q, low, high);
      });
    }
  }
  Offset fit(std::uint32_t i, Fit how) {
    if (!stretches_) return how == Fit::kFirst ? index_.first_fit(i) : index_.best_fit(i);
    occupied_.clear();
    each_neighbour(i, [&](std::uint32_t, Offset low, Offset high) { occupied_.emplace_back(low, high); });
    return how == Fit::kFirst ? lowest_gap(occupied_, problem_[i].size, problem_[i].alignment)
                              : tightest_gap(occupied_, problem_[i].size, problem_[i].alignment);
  }

  void find_fullest() {
    std::vector<Size> of_piece = fullest_section(stretches_ ? stretches_->pieces : problem_, sections_);
    if (!stretches_) {
      fullest_ = std::move(of_piece);
      return;
    }
    fullest_.assign(problem_.size(), 0);
    for (std::uint32_t p = 0; p < stretches_->first_obstacle(); ++p) {
      Size& fullest = fullest_[stretches_->owner[p]];
      fullest = std::max(fullest, of_piece[p]);
    }
  }

  // In which order what is not core is fitted. With gaps always by the fullest section, then by length.
  Order order_of_rest() const {
    if (!stretches_) return make_order(problem_, sections_, options_.order, options_.noise, options_.seed);
    Random random(options_.seed);
    std::vector<double> key(problem_.size());
    for (std::uint32_t i = 0; i < key.size(); ++i)
      key[i] = length(i) * (options_.noise > 0 ? std::exp(options_.noise * random.normal()) : 1.0);
    Order order(problem_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      return fullest_[a] != fullest_[b] ? fullest_[a] > fullest_[b] : key[a] > key[b];
    });
    return order;
  }

  // Some of the buffers by themselves.
  struct Some {
    Problem problem;
    std::optional<Stretches> stretches{};
  };
  Some take_out(const std::vector<std::uint32_t>& buffers) const {
    Some some{extract(problem_, buffers)};
    if (!stretches_) return some;
    some.stretches.emplace();
    for (const std::uint32_t i : buffers) some.stretches->add(problem_[i], stretches_->of(i));
    if (stretches_->obstacles.empty()) return some;
    Lifetime all = some.stretches->pieces.front().lifetime;
    for (const Buffer& piece : some.stretches->pieces) {
      all.begin = std::min(all.begin, piece.lifetime.begin);
      all.end = std::max(all.end, piece.lifetime.end);
    }
    for (std::size_t k = 0; k < stretches_->obstacles.size(); ++k) {
      const Lifetime& lifetime = stretches_->pieces[stretches_->first_obstacle() + k].lifetime;
      const Lifetime both{std::max(all.begin, lifetime.begin), std::min(all.end, lifetime.end)};
      if (both.begin < both.end) some.stretches->add_obstacle(both, stretches_->obstacle(k));
    }
    return some;
  }

  // Whoever waits for it wants no answer any more.
  bool is_called_off() const { return limits_.stop && limits_.stop->load(std::memory_order_relaxed); }

  bool stopped() const {
    return is_called_off() || (limits_.enough && limits_.enough->load(std::memory_order_relaxed)) ||
           work_ >= last_work_ || std::chrono::steady_clock::now() >= limits_.deadline;
  }

  void put(std::uint32_t i, Offset offset, std::vector<std::uint32_t>& over) {
    insert(i, offset);
    ++work_;
    if (top(i) > target_) over.push_back(i);
  }

  std::vector<Offset> offsets() const {
    std::vector<Offset> offsets(problem_.size());
    for (std::uint32_t i = 0; i < offsets.size(); ++i) offsets[i] = offset_of(i);
    return offsets;
  }

  // Packs the pieces of those among `from` (by first section) that live above the threshold. A piece that
  // resists is tried again with less of it, the hotter part.
  void place_core(const std::vector<std::uint32_t>& from, double threshold, bool& packed) {
    const double least = threshold * static_cast<double>(target_);
    std::vector<std::uint32_t> core;
    for (const std::uint32_t i : from) {
      if (static_cast<double>(fullest_[i]) > least) core.push_back(i);
    }
    for (auto begin = core.begin(); begin != core.end() && !stopped();) {
      auto end = begin;
      std::uint32_t until = 0;
      while (end != core.end() && (end == begin || first(*end) < until)) {
        until = std::max(until, last(*end++));
      }
      const std::vector<std::uint32_t> piece(begin, end);
      std::vector<Offset> offsets;
      if (pack(piece, offsets) || pack_around(piece, threshold, offsets)) {
        for (std::size_t k = 0; k < piece.size(); ++k) insert(piece[k], offsets[k]);
      } else if (threshold < 0.98) {
        place_core(piece, (1 + threshold) / 2, packed);
      } else {
        packed = false;
      }
      begin = end;
    }
  }

  bool pack(const std::vector<std::uint32_t>& piece, std::vector<Offset>& offsets) {
    if (piece.size() > options_.largest_exact) return false;
    const Some some = take_out(piece);
    SearchLimits limits = limits_;
    if (stretches_) return pack_with_gaps(some, offsets, limits);
    const Problem& problem = some.problem;
    ExactSearch search(problem);
    constexpr std::string_view kKeys[] = {"TW", "WT", "L", "W", "TW", "W"};
    for (std::size_t k = 0; k < std::size(kKeys); ++k) {
      const Order order =
          make_order(problem, search.sections(), kKeys[k], k < 3 ? 0.0 : 0.1, options_.seed + k);
      if (stopped()) return false;
      limits.nodes = std::min(options_.nodes_per_buffer * piece.size() + 1000, last_work_ - work_);
      const Verdict verdict = search.run(target_, order, limits, offsets);
      work_ += search.nodes();
      if (verdict != Verdict::kGaveUp) return verdict == Verdict::kFits;
    }
    return false;
  }

  bool pack_with_gaps(const Some& some, std::vector<Offset>& offsets, SearchLimits limits) {
    ExactSearch search(some.problem, *some.stretches);
    constexpr std::string_view kKeys[] = {"TWA", "WAT", "TAW", "LTW", "TWA", "WAT"};
    for (std::size_t k = 0; k < std::size(kKeys) && !stopped(); ++k) {
      const Ranking ranking{kKeys[k], k < 4 ? 0.0 : 0.3, options_.seed + k};
      limits.nodes = std::min(options_.nodes_per_buffer * some.problem.size() + 1000, last_work_ - work_);
      const Verdict verdict = search.run(target_, ranking, limits, offsets);
      work_ += search.nodes();
      if (verdict != Verdict::kGaveUp) return verdict == Verdict::kFits;
    }
    return false;
  }

  // The hotter part of the piece first and the rest of it around that, in several ways.
  bool pack_around(const std::vector<std::uint32_t>& piece, double threshold, std::vector<Offset>& offsets) {
    if (options_.retries == 0 || threshold > options_.threshold || piece.size() > kLargestRetried)
      return false;
    const Some some = take_out(piece);
    const Problem& problem = some.problem;
    const Stretches* stretches = some.stretches ? &*some.stretches : nullptr;
    const Sections sections = find_sections(stretches ? stretches->pieces : problem);
    for (unsigned k = 0; k < options_.retries && !stopped(); ++k) {
      const auto& [hotter, fit] = kRetries[k % std::size(kRetries)];
      CoreFirstOptions options = options_;
      options.threshold = std::max(hotter, threshold);
      options.fit = fit;
      options.retries = 0;
      options.seed = options_.seed + k;
      options.must_answer = false;
      const bool patient = k >= std::size(kRetries);
      options.noise = patient ? 0.2 : 0.0;
      options.repair_effort = patient ? kManyRepairs : kFewRepairs;
      SearchLimits limits = limits_;
      limits.nodes = last_work_ - work_;
      offsets = CoreFirst(problem, stretches, sections, target_, options, limits, work_).run();
      if (!offsets.empty() && arena_size(problem, offsets) <= target_) return true;
    }
    return false;
  }

  // Puts an overflowing buffer where those in its way are the easiest to fit elsewhere, and fits them again:
  // big short-lived buffers come down, small ones move aside. Who has moved often is harder to move again.
  void eject(std::uint32_t i, std::vector<std::uint32_t>& over) {
    const Size size = problem_[i].size, alignment = problem_[i].alignment;
    if (size > target_) return;
    const Offset old = offset_of(i);
    erase(i);
    neighbours_.clear();
    std::vector<Offset> starts{0};
    std::vector<Range> obstacles;
    each_neighbour(i, [&](std::uint32_t j, Offset begin, Offset end) {
      if (j == Stretches::kNobody) obstacles.push_back({begin, end - begin});
      else neighbours_.push_back({begin, end, j});
      const Offset above = (end + alignment - 1) / alignment * alignment;
      if (above + size <= target_) starts.push_back(above);
      if (begin >= size && begin <= target_) starts.push_back((begin - size) / alignment * alignment);
    });
    std::erase_if(starts, [&](Offset start) {
      return std::any_of(obstacles.begin(), obstacles.end(), [&](const Range& range) {
        return range.overlaps({start, size});
      });
    });
    effort_ += starts.size() * obstacles.size();
    if (starts.empty()) return insert(i, old);
    // In the way of [start, start + size) are those that begin before its end, less those that end by its
    // start.
    using Sum = std::pair<Offset, double>;
    std::vector<Sum> begins, ends;
    for (const Neighbour& n : neighbours_) {
      begins.emplace_back(n.begin, weight(n.buffer));
      ends.emplace_back(n.end, weight(n.buffer));
    }
    for (std::vector<Sum>* sums : {&begins, &ends}) {
      std::sort(sums->begin(), sums->end());
      double sum = 0;
      for (Sum& entry : *sums) entry.second = sum += entry.second;
    }
    const auto before = [](const std::vector<Sum>& sums, Offset offset) {  // of those at less than offset
      const auto it = std::lower_bound(sums.begin(), sums.end(), offset,
                                       [](const Sum& entry, Offset at) { return entry.first < at; });
      return it == sums.begin() ? 0.0 : (it - 1)->second;
    };
    effort_ += 16 * starts.size();
    Offset best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const Offset start : starts) {
      const double cost = before(begins, start + size) - before(ends, start + 1);
      if (cost < least) least = cost, best = start;
    }
    ++moved_[i];
    std::vector<std::uint32_t> evicted;
    for (const Neighbour& n : neighbours_) {
      if (Range{best, size}.overlaps({n.begin, n.end - n.begin})) evicted.push_back(n.buffer);
    }
    insert(i, best);
    std::sort(evicted.begin(), evicted.end(),
              [&](auto a, auto b) { return weight(a) != weight(b) ? weight(a) > weight(b) : a < b; });
    evicted.erase(std::unique(evicted.begin(), evicted.end()),
                  evicted.end());  // some are there with two pieces
    for (const std::uint32_t j : evicted) erase(j);
    for (const std::uint32_t j : evicted) put(j, fit(j, Fit::kFirst), over);
  }

  double weight(std::uint32_t i) const {
    return static_cast<double>(problem_[i].size) * length(i) * (1.0 + moved_[i]);
  }

  struct Neighbour {
    Offset begin, end;
    std::uint32_t buffer;
  };
  const Problem& problem_;
  const Stretches* stretches_;  // nullptr: there are no gaps
  const Sections& sections_;
  const Size target_;
  const CoreFirstOptions& options_;
  const SearchLimits& limits_;
  std::uint64_t& work_;
  const std::uint64_t last_work_;  // where it stops
  FitIndex index_;
  std::vector<Size> fullest_;
  std::vector<std::uint32_t> moved_;                 // how often each was put somewhere by force
  std::uint64_t effort_ = 0;                         // steps made by repairs
  std::vector<Neighbour> neighbours_;                // scratch
  std::vector<std::pair<Offset, Offset>> occupied_;  // scratch
};

}  // namespace

std::vector<Offset> core_first(const Problem& problem, const Sections& sections, Size target,
                               const CoreFirstOptions& options, const SearchLimits& limits,
                               std::uint64_t& work) {
  if (problem.empty()) return {};
  return CoreFirst(problem, nullptr, sections, target, options, limits, work).run();
}

std::vector<Offset> core_first(const Problem& problem, const Stretches& stretches, const Sections& sections,
                               Size target, const CoreFirstOptions& options, const SearchLimits& limits,
                               std::uint64_t& work) {
  if (problem.empty()) return {};
  return CoreFirst(problem, &stretches, sections, target, options, limits, work).run();
}

}  // namespace memoir
