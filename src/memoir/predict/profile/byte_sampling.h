// SPDX-License-Identifier: Apache-2.0
//
// Poisson sampling by bytes, and what a sample stands for.
//
//   bytes      |-16-|-----400-----|-16-|-16-|------------- 9,000 -------------|-16-| ...
//   points          x                              x           x                          one in `every`
//   sampled         400                            9,000 (once)
//
// An object is sampled when a point falls on one of its bytes. The gaps between points are exponential with
// mean `every`; the gap is drawn again behind a sampled object, which changes nothing (the distribution has
// no memory). So an object of s bytes is sampled with probability
//
//   p(s) = 1 - exp(-s / every)
//
// whatever else is allocated, and one sample of s bytes stands for 1 / p(s) objects and s / p(s) bytes. The
// sums of these over the samples of any group of objects are unbiased estimates of their number and bytes
// (Horvitz and Thompson's estimator). For n objects of one size the variance of the number is
// n (1 - p) / p. Objects of 0 bytes are never sampled.
//
// No function here calls the maths library: the sampler is linked without it.
#pragma once

#include <bit>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir::byte_sampling {

/// Weights are in units of 2^-16 objects: whole numbers add up to the same in any order.
inline constexpr std::uint64_t kOne = 1 << 16;
inline constexpr Size kMostEvery = Size{1} << 40;

/// 1 - exp(-x), x >= 0, to about 1e-15 of its value.
constexpr double share_within(double x) noexcept {
  if (x > 40) return 1;
  int halvings = 0;
  for (; x > 0x1p-5; ++halvings) x /= 2;
  // 1 - exp(-x) = x - x^2/2 + x^3/6 - ...
  double term = x, sum = 0;
  for (int k = 2; k < 12; ++k) {
    sum += term;
    term *= -x / k;
  }
  for (; halvings > 0; --halvings) sum *= 2 - sum;  // 1 - exp(-2 x) = (1 - exp(-x)) (1 + exp(-x))
  return sum;
}

/// How many objects a sample of that size stands for, in 1 / kOne. size >= 1, 1 <= every <= kMostEvery.
constexpr std::uint64_t weight(Size size, Size every) noexcept {
  const double p = share_within(static_cast<double>(size) / static_cast<double>(every));
  return static_cast<std::uint64_t>(static_cast<double>(kOne) / p + 0.5);
}

/// How many bytes it stands for.
constexpr std::uint64_t weighted_bytes(Size size, std::uint64_t weight) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide bytes = (Wide{size} * weight + kOne / 2) / kOne;
  return bytes > ~std::uint64_t{0} ? ~std::uint64_t{0} : static_cast<std::uint64_t>(bytes);
}

/// xoshiro256** (Blackman and Vigna 2018) of 32 bytes; not for secrets.
class Random {
 public:
  constexpr Random() = default;
  constexpr explicit Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {  // splitmix64
      std::uint64_t z = (seed += 0x9e3779b97f4a7c15ull);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      word = z ^ (z >> 31);
    }
  }
  constexpr std::uint64_t operator()() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9, kept = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= kept;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

 private:
  std::uint64_t state_[4]{};
};

/// An exponential variate of mean 1, exact to 2^-53, by comparing uniform ones (von Neumann 1951): where
/// uniform numbers fall n times in a row before one rises, an even n accepts the first of them; each refusal
/// adds 1.
constexpr double exponential(Random& random) noexcept {
  for (int whole = 0;; ++whole) {
    const std::uint64_t first = random() >> 11;
    std::uint64_t last = first;
    for (bool accept = true;; accept = !accept) {
      const std::uint64_t next = random() >> 11;
      if (next >= last) {
        if (accept) return whole + static_cast<double>(first) * 0x1p-53;
        break;
      }
      last = next;
    }
  }
}

/// Bytes before the next sampled one: an object that has more than these is sampled. At most 2^62.
constexpr std::int64_t gap(Random& random, Size every) noexcept {
  const double bytes = exponential(random) * static_cast<double>(every);
  return bytes < 0x1p62 ? static_cast<std::int64_t>(bytes) : std::int64_t{1} << 62;
}

}  // namespace memoir::byte_sampling
