// SPDX-License-Identifier: Apache-2.0
//
// Buckets of a histogram of lifetimes, eight to a factor of ten from 10 on, so that the classes of lifetimes
// (10 ms, 100 ms, ... 1,000 s) end where a bucket ends:
//
//   bucket   0   1   2   3   4    5    6    7      8      ...  14     15       ...
//   values   0   1   2   3   4-5  6-7  8-9  10-12  13-16       74-99  100-132
//
// The start of bucket 7 + 8 d + i is 10^(d + 1) times the i-th of kEighths, rounded down. All is whole
// numbers: every machine has the same buckets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace memoir::log_buckets {

namespace detail {

inline constexpr std::uint64_t kEighths[8] = {100000000, 133352143, 177827941, 237137371,
                                              316227766, 421696503, 562341325, 749894209};
inline constexpr std::uint64_t kSmall[7] = {0, 1, 2, 3, 4, 6, 8};
inline constexpr size_t kDecades = 18;  // 10 to 10^19

constexpr auto begins() noexcept {
  std::array<std::uint64_t, 7 + 8 * kDecades> result{};
  for (size_t i = 0; i < 7; ++i) result[i] = kSmall[i];
  std::uint64_t ten = 10;
  for (size_t decade = 0; decade < kDecades; ++decade, ten *= 10) {
    for (size_t i = 0; i < 8; ++i) {
      // ten * kEighths / 10^8 without 128 bits: whole and rest of ten / 10^8 apart.
      const std::uint64_t whole = ten / 100000000, rest = ten % 100000000;
      result[7 + 8 * decade + i] = whole * kEighths[i] + rest * kEighths[i] / 100000000;
    }
  }
  return result;
}

inline constexpr auto kBegins = begins();

}  // namespace detail

inline constexpr size_t kCount = detail::kBegins.size();

/// The smallest value of the bucket. bucket < kCount.
constexpr std::uint64_t begin(size_t bucket) noexcept { return detail::kBegins[bucket]; }

/// The bucket that has `value`; the last one has all that is larger, too.
constexpr size_t of(std::uint64_t value) noexcept {
  size_t low = 0, high = kCount;  // begin(low) <= value < begin(high)
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (begin(middle) <= value ? low : high) = middle;
  }
  return low;
}

}  // namespace memoir::log_buckets
