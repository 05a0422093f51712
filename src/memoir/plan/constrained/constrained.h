// SPDX-License-Identifier: Apache-2.0
//
// The planners that take whatever a problem can say, alone or mixed (docs/reference/constraints.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memoir/plan/constrained/constrained_bounds.h"
#include "memoir/plan/search.h"

namespace memoir {

enum class ConstrainedPlanner {
  kAuto,   // reduces to the plain problem where that loses nothing; else all of the below until the deadline
  kExact,  // complete search: for small problems, with a proof where it ends
  kFirstFit,  // several orders, each body to the lowest place left
};

struct ConstrainedResult {
  bool found = false;        // false: banks left no place; there is no plan then
  ConstrainedPlan plan;      // passes check()
  Objective objective;       // of it
  Objective lower_bound;     // no plan that keeps to capacities and moves has a smaller one
  std::string bound_reason;  // of the sum of the arenas; or why no plan keeps to the limits
  std::string cost_reason;   // of the cost, where capacities raise it above everyone's cheapest arena
  Size paid = 0;             // bytes: the prices of pairs that share
  // no plan's arenas and prices together are less; with a capacity of the one arena, no plan's prices alone
  Size least_priced = 0;
  Size load = 0;         // bytes needed at one tick, or by one clique of the conflicts
  bool optimal = false;  // it fits, and objective == lower_bound. Hints and locality are only preferred
  bool fits = false;     // keeps to the capacities and the limit of moves
  bool proven_infeasible = false;  // no plan does
  std::string maker;               // the method that made it
  double seconds = 0;
  std::uint64_t work = 0;  // of the complete search: nodes
};

/// Makes small, in this order: the moves (when replanning without a limit), the cost, the sum of the arenas.
/// With prices as plan_priced() says.
/// Then follows hints and, if asked, warms up. `options.capacity` is that of the one arena: unless
/// replanning, the first plan that fits is good enough. Deterministic for a seed under a work limit.
/// Thread-safe. Throws Error where validate() does, or for a capacity and several arenas.
ConstrainedResult plan_constrained(const ConstrainedProblem& problem, ConstrainedPlanner planner,
                                   const SearchOptions& options = {});

/// A problem without constraints that has the same plans as one with.
struct PlainForm {
  Problem problem;
  std::vector<std::uint32_t> body_of;  // for each buffer the one of `problem` that it became
  std::vector<Size> shift;             // for each buffer, bytes from that one's offset to its own
};

/// When there is one: aliases and rows that live at one time merged; least sizes, hints and locality left
/// out.
std::optional<PlainForm> reduce_to_plain(const ConstrainedProblem& problem);

}  // namespace memoir
