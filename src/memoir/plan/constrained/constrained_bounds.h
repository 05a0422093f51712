// SPDX-License-Identifier: Apache-2.0
//
// What no plan of a constrained problem can undercut, and why: without any search.
#pragma once

#include <string>

#include "memoir/plan/constrained/bodies.h"

namespace memoir {

struct ConstrainedBound {
  Objective objective;      // each entry by itself is at most every plan's
  Size load = 0;            // bytes needed at one tick (or by one clique of the conflict graph)
  std::string reason;       // of the total
  std::string cost_reason;  // of the cost, when capacities raise it above everyone's cheapest arena
  bool infeasible = false;  // no plan keeps to the capacities
  std::string infeasible_reason;
};

/// The load counts each body's needed bytes once, less what may be shared in place; forbidden ranges push it
/// up. O(n log n) without a conflict graph; cliques of one are grown greedily.
ConstrainedBound lower_bound(const Bodies& bodies);

/// The most bytes needed at one tick when every buffer has its smallest size: what the uncertainty costs is
/// the difference to load(). Windows count as far as they lie within the smallest size.
Size low_load(const ConstrainedProblem& problem);

}  // namespace memoir
