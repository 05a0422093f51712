// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memoir/base/units.h"

namespace memoir {

/// The smallest multiple of `alignment` (> 0, any value) that is >= value. The caller keeps value below 2^64
/// - alignment.
inline Offset align_to(Offset value, Size alignment) noexcept {
  if (is_power_of_two(alignment)) return align_up(value, alignment);
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace memoir
