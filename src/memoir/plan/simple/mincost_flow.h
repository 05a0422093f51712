// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// Buffers share whole objects, chosen by a minimum-cost flow; the objects are then laid end to end.
/// Lee et al., "On-Device Neural Net Inference with Mobile GPUs" (arXiv 1907.01989), section 4.3: one unit of
/// flow to each buffer, either for a new object (it costs the buffer's size) or from a buffer that is dead by
/// then and has not given its object to another yet (it costs what the object would have to grow).
///
/// The optimum of that flow, by successive shortest paths. Not the optimum of the sharing: growth is counted
/// against the last tenant only, not the largest. Objects cannot be split or stacked in part, so offsets
/// often do better.
///
/// Deterministic. O(n^3) at worst, so it throws Error for more than kMincostFlowLimit buffers, and where
/// validate() does.
Plan mincost_flow(const Problem& problem);

inline constexpr size_t kMincostFlowLimit = 5000;

/// The flow itself: for each buffer the one whose object it takes over, or kNoDonor for a new object.
std::vector<std::uint32_t> share_by_flow(const Problem& problem);

inline constexpr std::uint32_t kNoDonor = ~std::uint32_t{0};

}  // namespace memoir
