// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// Hill climbing over the order of first fit, after TVM's hill_climb (Unified Static Memory Planner, by
/// Arm): begins with the largest first; then again and again takes a buffer that ends at the arena's top and
/// exchanges the turns of two that may be in its way, one that it meets and that was placed before it, and
/// one that such a one meets. What is worse is taken back, or kept now and then while the search is young.
///
/// Only what an exchange changes is placed again: a buffer whose earlier neighbours have not moved stays. So
/// an attempt costs what it moves, and there are 2,000 instead of TVM's 500, fewer where buffers have many
/// thousands of neighbours (the effort is bounded, not the time). Deterministic. Throws Error where
/// validate() does.
Plan hill_climb(const Problem& problem);
/// The same, with its best after that many seconds of wall clock.
Plan hill_climb_within(const Problem& problem, double seconds);

}  // namespace memoir
