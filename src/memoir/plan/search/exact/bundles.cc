// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/exact/bundles.h"

#include <algorithm>
#include <utility>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/random.h"
#include "memoir/plan/search/exact/decompose.h"

namespace memoir {
namespace {

constexpr std::size_t kMostInStack = 6;
constexpr std::size_t kMostChoices = 12;  // of buffers with equal lifetimes: 2,497 sums
constexpr std::size_t kMostToStack = 24;  // of those that are born, or die, at one boundary
constexpr std::size_t kMostJoined = 8;    // of buffers with equal lifetimes
constexpr double kByChance = 0.1;         // equal sums that are expected of so many choices
constexpr int kMostPasses = 20;

class Tying {
 public:
  Tying(const Problem& problem, const Sections& sections, const BundleOptions& options)
      : options_(options), random_(options.seed), grid_(find_grid(problem)) {
    born_.resize(sections.count + 1);
    dying_.resize(sections.count + 1);
    bundles_.reserve(problem.size());
    for (std::uint32_t i = 0; i < problem.size(); ++i) {
      bundles_.push_back({sections.first[i], sections.last[i], problem[i], {{i, 0}}});
      born_[sections.first[i]].push_back(i);
      dying_[sections.last[i]].push_back(i);
    }
  }

  Bundles run() {
    bool changed = true;
    for (int pass = 0; changed && pass < kMostPasses; ++pass) {
      changed = false;
      for (std::uint32_t s = 1; s + 1 < born_.size(); ++s) {
        shuffle(dying_[s]);
        shuffle(born_[s]);
        changed |= chain(s);
        // One stack at a time: it may be chained at its other end before more is stacked on it.
        bool stacked = stack(dying_[s], born_[s]);
        stacked |= stack(born_[s], dying_[s]);
        changed |= stacked || join(s);
      }
    }
    return result();
  }

 private:
  struct Bundle {
    std::uint32_t first, last;  // sections
    Buffer shape;
    std::vector<std::pair<std::uint32_t, Offset>> members;  // empty: tied to another
  };
  using List = std::vector<std::uint32_t>;  // bundles

  Size padded(std::uint32_t i) const { return grid_.padded(bundles_[i].shape.size); }
  bool wanted() { return options_.keep >= 1.0 || random_.uniform() < options_.keep; }

  void shuffle(List& list) {
    for (std::size_t k = list.size(); k > 1; --k) std::swap(list[k - 1], list[random_.below(k)]);
  }

  static void remove(List& list, std::uint32_t i) { list.erase(std::find(list.begin(), list.end(), i)); }

  // Everything of `from` moves with `to`, `up` bytes above its offset.
  void take_in(std::uint32_t to, std::uint32_t from, Offset up) {
    for (const auto& [buffer, within] : bundles_[from].members)
      bundles_[to].members.emplace_back(buffer, up + within);
    bundles_[from].members.clear();
    Buffer& shape = bundles_[to].shape;
    shape.size = std::max(shape.size, up + bundles_[from].shape.size);
    shape.alignment = std::max(shape.alignment, bundles_[from].shape.alignment);
    shape.lifetime.begin = std::min(shape.lifetime.begin, bundles_[from].shape.lifetime.begin);
    shape.lifetime.end = std::max(shape.lifetime.end, bundles_[from].shape.lifetime.end);
  }

  // The greater of the two then serves both.
  static bool align_alike(Size x, Size y) { return x % y == 0 || y % x == 0; }

  // Where one dies and one of the same size is born, they become one.
  bool chain(std::uint32_t s) {
    bool changed = false;
    List &dying = dying_[s], &born = born_[s];
    for (std::size_t k = 0; k < dying.size();) {
      const std::uint32_t i = dying[k];
      const auto next = std::find_if(born.begin(), born.end(), [&](std::uint32_t j) {
        return padded(j) == padded(i) &&
               align_alike(bundles_[i].shape.alignment, bundles_[j].shape.alignment);
      });
      if (next == born.end() || !wanted()) {
        ++k;
        continue;
      }
      const std::uint32_t j = *next;
      take_in(i, j, 0);
      bundles_[i].last = bundles_[j].last;
      std::replace(dying_[bundles_[j].last].begin(), dying_[bundles_[j].last].end(), j, i);
      born.erase(next);
      dying.erase(dying.begin() + static_cast<std::ptrdiff_t>(k));
      changed = true;
    }
    return changed;
  }

  // Stacks some of `parts` that live the same sections and together are as large as one of `wholes`.
  bool stack(const List& wholes, const List& parts) {
    const std::size_t count_wholes = std::min(wholes.size(), kMostToStack);
    const std::size_t count_parts = std::min(parts.size(), kMostToStack);
    for (std::size_t w = 0; w < count_wholes; ++w) {
      const std::uint32_t whole = wholes[w];
      for (std::size_t k = 0; k + 1 < count_parts; ++k) {
        const auto alike = [&](std::uint32_t j) {
          return bundles_[j].first == bundles_[parts[k]].first && bundles_[j].last == bundles_[parts[k]].last;
        };
        if (std::any_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(k), alike)) continue;
        choices_.clear();
        for (std::size_t l = k; l < count_parts && choices_.size() < kMostChoices; ++l) {
          if (alike(parts[l]) && padded(parts[l]) < padded(whole)) choices_.push_back(parts[l]);
        }
        for (std::size_t count = 2; count <= kMostInStack; ++count) {
          chosen_.clear();
          if (!choose(0, padded(whole), count)) continue;
          if (!wanted()) break;
          pile(chosen_);
          return true;
        }
      }
    }
    return false;
  }

  // Chooses until there are `count`, from `from` on, `bytes` more in all; each starts where its alignment
  // allows.
  bool choose(std::size_t from, Size bytes, std::size_t count) {
    if (chosen_.size() == count) return bytes == 0;
    for (std::size_t k = from; k < choices_.size(); ++k) {
      const std::uint32_t i = choices_[k];
      if (padded(i) > bytes) continue;
      Size below = 0, alignment = 1;
      for (const std::uint32_t j : chosen_) {
        below += padded(j);
        alignment = std::max(alignment, bundles_[j].shape.alignment);
      }
      if (below % bundles_[i].shape.alignment != 0 || !align_alike(alignment, bundles_[i].shape.alignment))
        continue;
      chosen_.push_back(i);
      if (choose(k + 1, bytes - padded(i), count)) return true;
      chosen_.pop_back();
    }
    return false;
  }

  // Some that were born together and die here, and some that are born here and will die together: where they
  // are as large, and so few that this is hardly chance, each becomes one stack. They are chained later.
  bool join(std::uint32_t s) {
    const std::vector<List> left = alike(dying_[s]), right = alike(born_[s]);
    std::vector<std::vector<Sum>> sums_of_born;
    for (const List& born : right) sums_of_born.push_back(sums_of(born));
    for (const List& dying : left) {
      const std::vector<Sum> sums = sums_of(dying);
      for (std::size_t r = 0; r < right.size(); ++r) {
        const List& born = right[r];
        if (dying.size() + born.size() < 3) continue;
        const auto choices = static_cast<double>((std::size_t{1} << dying.size()) << born.size());
        for (const auto& [bytes, set] : sums_of_born[r]) {
          if (choices > kByChance * static_cast<double>(bytes / grid_.unit)) continue;
          const auto same = std::lower_bound(sums.begin(), sums.end(), Sum{bytes, 0});
          if (same == sums.end() || same->first != bytes) continue;
          List below = chosen_of(dying, same->second), above = chosen_of(born, set);
          if (below.size() + above.size() < 3 || !stackable(below) || !stackable(above) || !wanted())
            continue;
          pile(below);
          pile(above);
          return true;
        }
      }
    }
    return false;
  }

  using Sum = std::pair<Size, std::uint32_t>;  // and whose it is

  // Of each subset but the empty one, sorted.
  std::vector<Sum> sums_of(const List& list) const {
    std::vector<Sum> sums{{0, 0}};
    for (std::size_t k = 0; k < list.size(); ++k) {
      for (std::size_t of = 0, count = sums.size(); of < count; ++of)
        sums.emplace_back(sums[of].first + padded(list[k]), sums[of].second | std::uint32_t{1} << k);
    }
    sums.erase(sums.begin());
    std::sort(sums.begin(), sums.end());
    return sums;
  }

  static List chosen_of(const List& list, std::uint32_t set) {
    List chosen;
    for (std::size_t k = 0; k < list.size(); ++k) {
      if ((set >> k & 1) != 0) chosen.push_back(list[k]);
    }
    return chosen;
  }

  // Those of the list that live the same sections, up to kMostJoined of each kind.
  std::vector<List> alike(const List& list) const {
    std::vector<List> kinds;
    for (std::size_t k = 0; k < std::min(list.size(), kMostToStack); ++k) {
      const std::uint32_t i = list[k];
      const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const List& other) {
        return bundles_[other[0]].first == bundles_[i].first && bundles_[other[0]].last == bundles_[i].last;
      });
      if (kind == kinds.end()) kinds.push_back({i});
      else if (kind->size() < kMostJoined) kind->push_back(i);
    }
    return kinds;
  }

  // In this order, each on the one before it.
  bool stackable(const List& list) const {
    Size below = 0, alignment = 1;
    for (const std::uint32_t i : list) {
      const Size own = bundles_[i].shape.alignment;
      if (below % own != 0 || !align_alike(alignment, own)) return false;
      alignment = std::max(alignment, own);
      below += padded(i);
    }
    return true;
  }

  void pile(const std::vector<std::uint32_t>& chosen) {
    const std::uint32_t bottom = chosen.front();
    for (std::size_t k = 1; k < chosen.size(); ++k) {
      take_in(bottom, chosen[k], padded(bottom));
      remove(born_[bundles_[bottom].first], chosen[k]);
      remove(dying_[bundles_[bottom].last], chosen[k]);
    }
  }

  Bundles result() const {
    Bundles out;
    out.bundle_of.resize(bundles_.size());
    out.within.resize(bundles_.size());
    for (const Bundle& bundle : bundles_) {
      if (bundle.members.empty()) continue;
      for (const auto& [buffer, within] : bundle.members) {
        out.bundle_of[buffer] = static_cast<std::uint32_t>(out.problem.size());
        out.within[buffer] = within;
      }
      out.problem.push_back(bundle.shape);
      out.problem.back().lifetime = {bundle.first, bundle.last};
    }
    return out;
  }

  const BundleOptions options_;
  Random random_;
  const Grid grid_;
  std::vector<Bundle> bundles_;
  std::vector<List> born_, dying_;  // per section: whose first it is, and whose last it is not any more
  List choices_, chosen_;
};

}  // namespace

std::vector<Offset> Bundles::untie(const std::vector<Offset>& offsets) const {
  std::vector<Offset> out(bundle_of.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = offsets[bundle_of[i]] + within[i];
  return out;
}

Bundles tie(const Problem& problem, const Sections& sections, const BundleOptions& options) {
  return Tying(problem, sections, options).run();
}

Verdict search_tied(const Bundles& bundles, Size capacity, const Ranking& ranking, const SearchLimits& limits,
                    std::vector<Offset>& offsets, std::uint64_t& work) {
  const Decomposition parts = decompose(bundles.problem);
  std::vector<Offset> tied(bundles.problem.size());
  for (const auto& [bundle, offset] : parts.placed) {
    if (offset + bundles.problem[bundle].size > capacity) return Verdict::kGaveUp;
    tied[bundle] = offset;
  }
  for (const Part& part : parts.parts) {
    if (part.base > capacity) return Verdict::kGaveUp;
    const Problem problem = extract(bundles.problem, part.buffers);
    ExactSearch search(problem);
    std::vector<Offset> found;
    const Verdict verdict = search.run(capacity - part.base, ranking, limits, found);
    work += search.nodes();
    if (verdict != Verdict::kFits) return Verdict::kGaveUp;
    for (std::size_t k = 0; k < found.size(); ++k) tied[part.buffers[k]] = part.base + found[k];
  }
  offsets = bundles.untie(tied);
  return Verdict::kFits;
}

}  // namespace memoir
