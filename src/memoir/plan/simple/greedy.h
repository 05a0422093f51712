// SPDX-License-Identifier: Apache-2.0
//
// Planners that place one buffer after another, each into a gap among those before it, and differ in the
// order and in the gap. Deterministic; equal keys fall back to the longer lifetime, then to the order of the
// problem. O(n log n) questions to a GapIndex. All throw Error where validate() does.
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// No reuse: the buffers laid end to end in the problem's order. What every other planner is compared with.
Plan bump(const Problem& problem);

/// As a plain allocator would that never joins what is free: in the order of births, into the place of the
/// last dead one of the same class of sizes (eight in each octave), or on top. Far from the best, and done at
/// once.
Plan recycle(const Problem& problem);

/// The largest buffer first, into the smallest gap that holds it.
/// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (arXiv 2001.03288),
/// section 5.2.
Plan greedy_by_size(const Problem& problem);

/// The tick with the most live bytes first, and of the buffers live there the largest first, into the
/// smallest gap. The same paper, section 5.3 ("breadth" is the sum of the sizes live while one operator runs;
/// here, at one tick).
Plan greedy_by_breadth(const Problem& problem);

/// First fit: each into the lowest gap that holds it. By start, the earliest born first, as an allocator
/// without foresight would; by length, the longest-lived first; by area, the largest size x length first.
Plan first_fit_by_start(const Problem& problem);
Plan first_fit_by_length(const Problem& problem);
Plan first_fit_by_area(const Problem& problem);

/// The buffer that lives together with the most others first, then the larger: TVM's greedy_by_conflicts
/// (Unified Static Memory Planner). Into the lowest gap; TVM puts each on top of the highest that it meets,
/// and leaves the gaps below empty.
Plan greedy_by_conflicts(const Problem& problem);

}  // namespace memoir
