// SPDX-License-Identifier: Apache-2.0
//
// Cuts a problem into parts that do not see each other: at ticks where nothing is live, and, as long as some
// buffers live through the whole of a part (weights), by laying those at its bottom and cutting what is left
// again. Neither loses anything: a buffer that is always there separates what is above it from what is below
// it, and the two can be exchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/plan.h"

namespace memoir {

struct Part {
  std::vector<std::uint32_t> buffers;  // indices into the problem, by birth
  Offset base = 0;  // what lies below it; the arena of a plan for the part is to be added to this
};

struct Decomposition {
  std::vector<Part> parts;
  // (buffer, offset) of those that live through a whole part
  std::vector<std::pair<std::uint32_t, Offset>> placed;
};

/// O(n log n) for each level of nesting.
Decomposition decompose(const Problem& problem);

/// The buffers of a part as a problem of its own, its ticks counted from its first birth.
Problem extract(const Problem& problem, const std::vector<std::uint32_t>& buffers);

}  // namespace memoir
