// SPDX-License-Identifier: Apache-2.0
//
// Lower bounds on the arena that cost no search. Each says why; exact.h and auto.h raise them by exhausting
// what is smaller.
#pragma once

#include "memoir/plan/index/sections.h"
#include "memoir/plan/search.h"

namespace memoir {

/// The larger of the load and of what alignment adds to it: of the buffers live at one tick whose offsets are
/// multiples of g, all but the topmost take up their size rounded up to g. For g the greatest common divisor
/// of all alignments and each of the larger ones. O(n log n) given the sections, at most the optimum always.
Bound lower_bound(const Problem& problem, const Sections& sections);
Bound lower_bound(const Problem& problem);

}  // namespace memoir
