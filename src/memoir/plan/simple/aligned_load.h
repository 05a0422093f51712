// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/plan/plan.h"

namespace memoir {

/// A floor of the arena that is never below load() and knows of alignment: of the buffers live at one tick
/// whose offsets are multiples of g, all but the topmost take up their size rounded up to g, for g the
/// greatest common divisor of all alignments and each of the larger ones. A plan of this size is optimal.
/// Throws Error where validate() does.
Size aligned_load(const Problem& problem);

}  // namespace memoir
