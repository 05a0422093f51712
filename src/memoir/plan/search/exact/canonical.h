// SPDX-License-Identifier: Apache-2.0
//
// A problem without what does not matter for placing. Stretching time by any strictly monotone map, running
// it backwards, or listing the buffers in another order gives the same problem; so the searches see one form
// of it: lifetimes count sections, buffers are sorted, and of the two directions of time the one that sorts
// first is taken. What they answer then cannot depend on the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/index/sections.h"
#include "memoir/plan/plan.h"

namespace memoir {

struct Canonical {
  Problem problem;                     // the lifetimes are sections
  std::vector<std::uint32_t> buffers;  // per buffer of it, the one that it was
  std::vector<Tick> ticks;  // per section, a tick of the original at which exactly its buffers are live
};

/// `buffers` are those of the problem that it takes, sorted by birth. O(n log n). Above 50,000 buffers all
/// stays as it is: there the search fits buffers one after another, and ticks say more than sections of how
/// long one lives.
Canonical canonical(const Problem& problem, const std::vector<std::uint32_t>& buffers);

}  // namespace memoir
