// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every platform (those of <random> are not, beyond the engines).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace memoir {

/// splitmix64 (Steele, Lea, Flood, OOPSLA'14).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t n) {
    return next() % n;
  }  // n > 0; the bias of n << 2^64 does not matter here
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double normal() {                                                         // Box-Muller
    const double u = 1.0 - uniform(), v = uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  std::uint64_t state_;
};

}  // namespace memoir
