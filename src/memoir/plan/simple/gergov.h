// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// Gergov's 3-approximation ("Algorithms for compile-time memory optimization", SODA 1999), then compacted.
///
/// 1. A skyline of time intervals, the lowest first. A buffer that meets the lowest interval and no other
///    that is still there is put on it, even where it sticks out over time whose intervals are gone: so two
///    buffers may overlap.
/// 2. The buffers that overlap in time and address are given different colours, first fit in the order of
///    placement, and each colour its own storey of the arena: now the plan is valid, and at most three times
///    the load.
/// 3. In the order of those offsets every buffer falls to the lowest place that is free: never worse, usually
///    far better.
///
/// Deterministic. Throws Error where validate() does. O((n + k) log n), with k the overlaps of step 1.
Plan gergov(const Problem& problem);

}  // namespace memoir
