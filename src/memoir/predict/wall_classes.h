// SPDX-License-Identifier: Apache-2.0
//
// Lifetime classes in wall time, a factor of ten apart, as the LLAMA paper has them:
//
//   number    0       1        2     3      4       5         6          7
//   below     10 ms   100 ms   1 s   10 s   100 s   1,000 s   (longer)   never freed
//
// memoir's own classes do not count time (lifetime_class.h).
#pragma once

#include <cstddef>

#include "memoir/base/units.h"

namespace memoir {

class WallClasses {
 public:
  static constexpr size_t kCount = 8;
  static constexpr size_t kLonger = kCount - 2;
  static constexpr size_t kNever = kCount - 1;
  static constexpr Tick kEndless = ~Tick{0};

  /// `shortest`: below how many nanoseconds the lifetimes of class 0 are, > 0.
  explicit constexpr WallClasses(Tick shortest = 10'000'000) noexcept : shortest_(shortest) {}

  /// Nanoseconds below which the lifetimes of a class are; for kLonger ten times those of the class before,
  /// kEndless for kNever.
  constexpr Tick bound(size_t number) const noexcept {
    if (number >= kNever) return kEndless;
    Tick bound = shortest_;
    for (size_t i = 0; i < number; ++i) bound = bound > kEndless / 10 ? kEndless - 1 : bound * 10;
    return bound;
  }
  /// The class of an object that lived so many nanoseconds; kEndless: that is never freed.
  constexpr size_t of(Tick lifetime) const noexcept {
    if (lifetime == kEndless) return kNever;
    size_t number = 0;
    while (number < kLonger && lifetime >= bound(number)) ++number;
    return number;
  }

 private:
  Tick shortest_;
};

}  // namespace memoir
