// SPDX-License-Identifier: Apache-2.0
//
// What every planner that searches is told, and what it answers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

/// A size that no valid plan can undercut, and the argument for it in one phrase, for people: "live together
/// at tick 12".
struct Bound {
  Size bytes = 0;
  std::string reason;
};

/// How far above the proven bound a plan may be for a search to stop.
struct Tolerance {
  Size bytes = 0;
  double share = 0;  // of the bound: 0.01 is 1 %

  /// The largest arena that is close enough to this bound.
  Size above(Size bound) const;
};

inline constexpr std::uint32_t kNoLoop = ~std::uint32_t{0};

struct SearchOptions {
  double deadline_s = 1.0;  // seconds of wall clock; infinity: until the answer is proven
  // Placements tried by one planner, 0: no limit. With one, the deadline is not looked at and the same seed
  // gives the same plan on any machine, whatever `threads` is. plan_auto() then runs plan_exact() too, with
  // as many.
  std::uint64_t work_limit = 0;
  unsigned threads = 0;          // 0: one per core
  std::uint64_t seed = 0;        // of the randomised restarts
  std::optional<Size> capacity;  // bytes: stop at the first plan that fits. Without it: the smallest arena
  // set by another thread or a signal handler: return the best so far
  const std::atomic<bool>* stop = nullptr;
  std::function<void(Size, double)>
      improved;           // (arena size, seconds) at each better plan; called by one thread at a time
  Tolerance tolerance{};  // without a capacity: the first plan that close to the bound is good enough
  // Per buffer, of a loop's body the one that it is a round of; kNoLoop: of none. Empty: nothing is said, and
  // loops are looked for. Only a hint: rounds are counted by birth.
  std::vector<std::uint32_t> loops{};
};

struct SearchResult {
  Plan plan;                       // valid always; fits the capacity unless it could not be done
  Size lower_bound = 0;            // bytes: proven, whatever ended the search
  std::string bound_reason;        // why no plan is smaller
  bool optimal = false;            // plan.arena_size == lower_bound
  bool proven_infeasible = false;  // no plan fits the capacity: lower_bound > capacity
  double seconds = 0;              // wall clock
  double cpu_seconds = 0;          // of all threads of the process, in that time
  bool starved = false;            // the deadline came, and it had got less than 0.7 of one processor
  std::uint64_t work = 0;          // placements tried

  bool fits(const SearchOptions& options) const {
    return !options.capacity || plan.arena_size <= *options.capacity;
  }
  /// Nothing is left to search for.
  bool good_enough(const SearchOptions& options) const {
    return optimal || proven_infeasible ||
           plan.arena_size <= options.capacity.value_or(options.tolerance.above(lower_bound));
  }
};

inline Size Tolerance::above(Size bound) const {
  const double more = std::floor(share * static_cast<double>(bound));
  // Far below where a double's whole numbers end: sizes add up to less than 2^63.
  const Size of_share = more < 0x1p62 ? static_cast<Size>(more) : Size{1} << 62;
  const Size slack = std::max(bytes, of_share);
  return slack > ~Size{0} - bound ? ~Size{0} : bound + slack;
}

}  // namespace memoir
