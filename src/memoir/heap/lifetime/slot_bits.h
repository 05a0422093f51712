// SPDX-License-Identifier: Apache-2.0
//
// 256 bits, one for each slot of a region, and the search for a run of ones among them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace memoir {

struct SlotBits {
  static constexpr size_t kBits = 256;
  static constexpr size_t kNone = kBits;

  std::uint64_t word[4] = {};

  static SlotBits run(size_t begin, size_t count) noexcept {
    SlotBits bits;
    for (size_t w = 0; w < 4; ++w) {
      const size_t low = w * 64, high = low + 64;
      const size_t from = begin > low ? begin : low, to = begin + count < high ? begin + count : high;
      if (from >= to) continue;
      bits.word[w] = (to - from == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (to - from)) - 1)
                     << (from - low);
    }
    return bits;
  }

  bool test(size_t i) const noexcept { return (word[i / 64] >> (i % 64) & 1) != 0; }
  bool any() const noexcept { return (word[0] | word[1] | word[2] | word[3]) != 0; }
  size_t count() const noexcept {
    size_t sum = 0;
    for (const std::uint64_t w : word) sum += ones(w);
    return sum;
  }
  bool operator==(const SlotBits&) const = default;
  SlotBits operator~() const noexcept { return {{~word[0], ~word[1], ~word[2], ~word[3]}}; }
  SlotBits operator&(const SlotBits& o) const noexcept {
    return {{word[0] & o.word[0], word[1] & o.word[1], word[2] & o.word[2], word[3] & o.word[3]}};
  }
  SlotBits operator|(const SlotBits& o) const noexcept {
    return {{word[0] | o.word[0], word[1] | o.word[1], word[2] | o.word[2], word[3] | o.word[3]}};
  }

  /// Ones in a word. Where no instruction for it may be assumed, std::popcount is a call.
  static size_t ones(std::uint64_t w) noexcept {
    w -= w >> 1 & 0x5555555555555555;
    w = (w & 0x3333333333333333) + (w >> 2 & 0x3333333333333333);
    return ((w + (w >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56;
  }

  /// Bit i of the result is bit i + n.
  SlotBits shifted_down(size_t n) const noexcept {
    SlotBits out;
    const size_t words = n / 64, bits = n % 64;
    for (size_t w = 0; w + words < 4; ++w) {
      out.word[w] = word[w + words] >> bits;
      if (bits != 0 && w + words + 1 < 4) out.word[w] |= word[w + words + 1] << (64 - bits);
    }
    return out;
  }

  size_t first() const noexcept {
    for (size_t w = 0; w < 4; ++w) {
      if (word[w] != 0) return w * 64 + static_cast<size_t>(std::countr_zero(word[w]));
    }
    return kNone;
  }

  /// Where the lowest run of `n` ones begins, or kNone.
  size_t first_run(size_t n) const noexcept {
    SlotBits begins = *this;  // runs of `length` begin here
    for (size_t length = 1; length < n;) {
      const size_t step = length < n - length ? length : n - length;
      begins = begins & begins.shifted_down(step);
      length += step;
    }
    return begins.first();
  }

  /// Ones from `begin` on, where bit `begin` is one.
  size_t run_length(size_t begin) const noexcept {
    const size_t zero = (~*this & run(begin, kBits - begin)).first();
    return (zero == kNone ? kBits : zero) - begin;
  }
};

}  // namespace memoir
