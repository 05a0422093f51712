// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// Best fit over a skyline: Sekiyama, Imai, Negishi, "Profile-guided memory optimization for deep neural
/// networks" (arXiv 1804.10001), section 3.2. Always works on the lowest part of the skyline: of the waiting
/// buffers that live within its time span, the one with the longest lifetime (then the largest, then the
/// first) is put on it; when there is none, that part is raised to its lower neighbour.
///
///   offset        +-----+            The lowest line is [4, 9) at 0. c = [4, 9) fits it and is put there;
///       |   +-----+  b  |            a buffer [3, 9) would have to wait until [2, 4) and [4, 9) are level.
///       |   |  a  |     |_____
///       0   0     2     4     9      time
///
/// Deterministic. Throws Error where validate() does. About O(n log n); the search for the longest is a
/// branch and bound.
Plan best_fit(const Problem& problem);

}  // namespace memoir
