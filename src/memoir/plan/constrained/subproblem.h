// SPDX-License-Identifier: Apache-2.0
//
// Some buffers of a problem that says more, as a problem of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/constraints.h"

namespace memoir {

struct Subproblem {
  ConstrainedProblem problem;
  std::vector<std::uint32_t> kept;  // per buffer of it, its index in the whole problem
};

/// Those whose flag is set, and what is said of them. A row closes where one is left out; of aliases all or
/// none are kept. The problem must be one that validate() accepts.
Subproblem subproblem_of(const ConstrainedProblem& problem, const std::vector<bool>& kept);

}  // namespace memoir
