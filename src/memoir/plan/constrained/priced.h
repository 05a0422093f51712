// SPDX-License-Identifier: Apache-2.0
//
// Plans where some pairs of buffers may share bytes at a price: a compiler for asynchronous units pays with a
// wait where one unit writes over what another still reads. Branch and bound over who pays (Land and Doig,
// Econometrica 28, 1960): a plan is made as if all prices were 0; of the pairs that share in it the dearest
// is forbidden to share in one branch, and pays in the other.
//
//   root: a on b for 9, c on d for 2        arena 100 + 11
//     |-- a, b share not                    arena 104 + 2    <- the best
//     |     |-- c, d share not              arena 108
//     |     `-- c, d pay 2                  at least 104 + 2
//     `-- a, b pay 9                        at least 100 + 9: not looked at
//
// Who must not share both need one tick more, after all others, that only these two live in: so what is left
// is a problem with gaps.
#pragma once

#include "memoir/plan/constrained/constrained.h"

namespace memoir {

/// As plan_constrained(), which calls it where there are prices. Makes the moves and the cost small, then the
/// sum of the arenas and of the prices paid, in bytes; with a capacity of the one arena the prices paid, then
/// the arena. Thread-safe. Throws Error where validate() does.
ConstrainedResult plan_priced(const ConstrainedProblem& problem, ConstrainedPlanner planner,
                              const SearchOptions& options);

}  // namespace memoir
