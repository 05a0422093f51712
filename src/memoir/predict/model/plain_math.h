// SPDX-License-Identifier: Apache-2.0
//
// exp, log and tanh to about 1e-13 of their value, as plain code: memoir's malloc needs no library but the C
// library's own part, and a model answers the same on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace memoir::plain_math {

/// 0 below -700; above 700 as at 700.
inline double exp(double x) noexcept {
  if (!(x > -700)) return 0;
  if (x > 700) x = 700;
  constexpr double kLog2 = 0.6931471805599453;
  const double scaled = x / kLog2;
  const auto power = static_cast<std::int64_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double rest = x - static_cast<double>(power) * kLog2;  // at most 0.35
  double sum = 1;
  for (int i = 13; i > 0; --i) sum = 1 + sum * rest / i;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(power + 1023) << 52);
}

/// Of a normal number above 0.
inline double log(double x) noexcept {
  constexpr double kLog2 = 0.6931471805599453, kRoot2 = 1.4142135623730951;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto power = static_cast<std::int64_t>(bits >> 52) - 1023;
  double fraction = std::bit_cast<double>((bits & 0xfffffffffffffull) | std::uint64_t{1023} << 52);
  if (fraction > kRoot2) {
    fraction /= 2;
    ++power;
  }
  const double ratio = (fraction - 1) / (fraction + 1), square = ratio * ratio;  // at most 0.172
  double sum = 0;
  for (int i = 19; i > 0; i -= 2) sum = sum * square + 1.0 / i;
  return 2 * ratio * sum + static_cast<double>(power) * kLog2;
}

inline float sigmoid(float x) noexcept { return static_cast<float>(1 / (1 + exp(-double{x}))); }
inline float tanh(float x) noexcept { return static_cast<float>(1 - 2 / (exp(2 * double{x}) + 1)); }

inline bool is_below(float value, float bound) noexcept { return value > -bound && value < bound; }

/// Of a number that is not negative.
inline double sqrt(double x) noexcept {
#if defined(__x86_64__)
  double root;
  asm("sqrtsd %1, %0" : "=x"(root) : "x"(x));
  return root;
#elif defined(__aarch64__)
  double root;
  asm("fsqrt %d0, %d1" : "=w"(root) : "w"(x));
  return root;
#else
  return __builtin_sqrt(x);
#endif
}

}  // namespace memoir::plain_math
