// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// A floor of the arena that is never below load() and knows of alignment: with g the greatest common divisor
/// of all alignments, every offset is a multiple of g, so of the buffers live at one tick all but the topmost
/// take up their size rounded up to g. A plan of this size is optimal. Throws Error where validate() does.
Size aligned_load(const Problem& problem);

}  // namespace memoir
