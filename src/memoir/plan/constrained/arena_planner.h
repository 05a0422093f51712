// SPDX-License-Identifier: Apache-2.0
//
// Plans where arenas cost differently and have capacities. First who goes where, by the program of
// arena_program.h alone: no section holds more than an arena has. Then each arena is packed by itself, as a
// problem of its own. What does not fit goes elsewhere, and whole plans are annealed from there
// (arena_search.h). Then the program again, with a little less room, until what it chooses can be packed.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "memoir/plan/constrained/arena_program.h"
#include "memoir/plan/constrained/arena_search.h"
#include "memoir/plan/constrained/constrained.h"

namespace memoir {

/// Not thread-safe.
class ArenaPlanner {
 public:
  /// `options` are those of the search as a whole. All must outlive it.
  ArenaPlanner(const Bodies& bodies, const Sections& sections, const SearchOptions& options);

  /// There is something to choose, and nothing that it does not understand.
  static bool worthwhile(const Bodies& bodies);

  /// Looks for plans until the deadline, or with options.work_limit for as many placements, which `work` is
  /// increased by; or until `found`, which is called with each plan, says that it is enough.
  void run(std::chrono::steady_clock::time_point deadline, std::uint64_t& work,
           const std::function<bool(const ConstrainedPlan&)>& found);

  /// Proven: no plan that keeps to the capacities costs less.
  std::uint64_t bound() const { return bound_; }

 private:
  using Clock = std::chrono::steady_clock;

  SearchLimits limits(double share) const;
  bool pack(std::uint32_t arena, ConstrainedPlanner planner, double share, ConstrainedPlan& plan,
            std::uint64_t& work) const;
  void prove();
  double cost_of_choice(const std::vector<std::uint32_t>& arenas) const;
  double highest_cost() const;
  std::optional<ConstrainedPlan> annealed(const ConstrainedPlan& from, double share, std::uint64_t& work);

  const Bodies& bodies_;
  const Sections& sections_;
  const SearchOptions& options_;
  ArenaProgram program_;
  Clock::time_point begin_, deadline_;
  std::uint64_t bound_ = 0, seeds_ = 0;
};

}  // namespace memoir
