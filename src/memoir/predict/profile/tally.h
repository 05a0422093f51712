// SPDX-License-Identifier: Apache-2.0
//
// A running tally of lifetimes: how many, the least and the most, their sum and the sum of their squares, so
// that mean and variance follow without keeping any. Sums stop at 2^128 - 1 and counts at 2^64 - 1 instead
// of wrapping; so adding tallies up gives the same in any order.
#pragma once

#include <algorithm>
#include <cstdint>

namespace memoir {

__extension__ using Wide = unsigned __int128;

inline constexpr std::uint64_t add_up_to_most(std::uint64_t a, std::uint64_t b) noexcept {
  return a + b < a ? ~std::uint64_t{0} : a + b;
}

/// 128 bits as two fields, the way they stand in a file.
struct WideSum {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  constexpr Wide value() const noexcept { return Wide{high} << 64 | low; }
  constexpr void add(Wide more) noexcept {
    const Wide sum = value() + more;
    const Wide held = sum < more ? ~Wide{0} : sum;
    low = static_cast<std::uint64_t>(held);
    high = static_cast<std::uint64_t>(held >> 64);
  }
  bool operator==(const WideSum&) const = default;
};

/// Of lifetimes in one unit. With count 0, all is 0.
struct Tally {
  std::uint64_t count = 0;
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  WideSum sum;
  WideSum squares;

  constexpr void add(std::uint64_t lifetime) noexcept {
    least = count == 0 ? lifetime : std::min(least, lifetime);
    most = std::max(most, lifetime);
    count = add_up_to_most(count, 1);
    sum.add(lifetime);
    squares.add(Wide{lifetime} * lifetime);
  }
  constexpr void add(const Tally& other) noexcept {
    if (other.count == 0) return;
    least = count == 0 ? other.least : std::min(least, other.least);
    most = std::max(most, other.most);
    count = add_up_to_most(count, other.count);
    sum.add(other.sum.value());
    squares.add(other.squares.value());
  }
  bool operator==(const Tally&) const = default;
};
static_assert(sizeof(Tally) == 56);

}  // namespace memoir
