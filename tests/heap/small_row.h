// SPDX-License-Identifier: Apache-2.0
//
// A row of blocks that a test can look through.
#pragma once

#include "memoir/base/units.h"

namespace memoir {

inline constexpr Size kAlignment = 512, kGranule = 4096, kCapacity = 64 * kGranule;

}  // namespace memoir
