// SPDX-License-Identifier: Apache-2.0
//
// What every planner that searches is told, and what it answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "memoir/plan/plan.h"

namespace memoir {

/// A size that no valid plan can undercut, and the argument for it in one phrase, for people: "live together
/// at tick 12".
struct Bound {
  Size bytes = 0;
  std::string reason;
};

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
      improved;  // (arena size, seconds) at each better plan; called by one thread at a time
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
};

}  // namespace memoir
