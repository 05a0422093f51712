// SPDX-License-Identifier: Apache-2.0
//
// How long an object is expected to live, measured in what the program allocates meanwhile and not in
// seconds: an object is long-lived when it outlives the allocation of `tau` times the heap. A program that
// runs at half the speed has the same classes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memoir {

enum class LifetimeClass : std::uint8_t { kShort, kLong };

inline constexpr size_t kLifetimeClasses = 2;

}  // namespace memoir
