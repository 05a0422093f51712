// SPDX-License-Identifier: Apache-2.0
//
// How warm the bytes are that a plan hands out. The age of a byte at a buffer's birth is the time since the
// last buffer on it died; a byte that was never used before is cold.
#pragma once

#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/constrained/fitter.h"

namespace memoir {

struct Reuse {
  Size warm_bytes = 0;  // summed over the buffers: bytes that an earlier one had
  Size cold_bytes = 0;  // bytes that none had
  double age = 0;       // ticks, summed over the warm bytes

  double mean_age() const { return warm_bytes == 0 ? 0 : age / static_cast<double>(warm_bytes); }
};

/// O(n log n). Gaps are not looked at: a buffer has its bytes from birth to death.
Reuse reuse_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan);

/// Moves bodies, in the order of their births, to where among all the others' places their bytes are the
/// warmest: a younger age first of all, a cold byte counts as old as the problem is long. No arena grows, no
/// body that is fixed, follows its hint or had an old place moves. Kept only when the whole gets warmer.
void warm_up(const Bodies& bodies, const Sections& sections, ConstrainedPlan& plan);

/// Moves bodies to their hints where all the others leave that free, within the plan's arenas.
void follow_hints(const Bodies& bodies, const Sections& sections, ConstrainedPlan& plan);

}  // namespace memoir
