// SPDX-License-Identifier: Apache-2.0
//
// Buffers of 0 bytes in problems that say more: planners see none of them.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/constrained.h"

namespace memoir {

struct WithoutEmpty {
  ConstrainedProblem problem;
  std::vector<std::uint32_t> kept;  // per buffer of it, its index in the whole problem
};

/// The buffers that have bytes, and what is said of them. A row closes where one of 0 bytes stood in it. The
/// problem must be one that validate() accepts.
WithoutEmpty without_empty(const ConstrainedProblem& problem);

/// The result for the whole problem. A buffer of 0 bytes gets its fixed offset or its old place, else the
/// offset 0 in the cheapest arena that it may be in.
ConstrainedResult with_empty(const ConstrainedProblem& problem, const WithoutEmpty& reduced,
                             ConstrainedResult result);

}  // namespace memoir
