// SPDX-License-Identifier: Apache-2.0
//
// Lower bounds on the arena that cost no search. Each says why; exact.h and auto.h raise them by exhausting
// what is smaller.
#pragma once

#include "memoir/plan/index/sections.h"
#include "memoir/plan/search.h"

namespace memoir {

/// The larger of the load and of what alignment adds to it: when every offset is a multiple of g, all buffers
/// live at one tick but the topmost take up their size rounded up to g. O(n) given the sections, at most the
/// optimum always.
Bound lower_bound(const Problem& problem, const Sections& sections);
Bound lower_bound(const Problem& problem);

}  // namespace memoir
