// SPDX-License-Identifier: Apache-2.0
//
// Buffers of 0 bytes in problems that say more: planners see none of them.
#pragma once

#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/constrained/subproblem.h"

namespace memoir {

/// The buffers that have bytes.
Subproblem without_empty(const ConstrainedProblem& problem);

/// The result for the whole problem. A buffer of 0 bytes gets its fixed offset or its old place, else the
/// offset 0 in the cheapest arena that it may be in.
ConstrainedResult with_empty(const ConstrainedProblem& problem, const Subproblem& reduced,
                             ConstrainedResult result);

}  // namespace memoir
