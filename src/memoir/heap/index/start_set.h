// SPDX-License-Identifier: Apache-2.0
//
// The offsets at which blocks begin, as a bit per unit with summaries above: finds the block that an offset
// lies in, in as many steps as there are levels (4 for a terabyte of 512 B units), after van Emde Boas by way
// of 64-ary trees of bits. The bits take metadata memory only where there are blocks: pages that nobody
// touched cost addresses.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class StartSet {
 public:
  StartSet() = default;
  ~StartSet() { reset(0); }
  StartSet(const StartSet&) = delete;
  StartSet& operator=(const StartSet&) = delete;

  /// Empty, for numbers below `count`. False when there is no metadata memory: it then holds none.
  bool reset(Size count) noexcept {
    for (Level& level : levels_) {
      if (level.words != nullptr) unmap_metadata(level.words, level.bytes);
      level = {};
    }
    used_ = 0;
    while (count != 0) {
      const Size words = (count + 63) / 64;
      Level& level = levels_[used_];
      level.bytes = align_up(words * sizeof(std::uint64_t), 4 * kKiB);
      level.words = static_cast<std::uint64_t*>(map_metadata(level.bytes));
      if (level.words == nullptr) return reset(0), false;
      ++used_;
      if (words == 1) break;
      count = words;
    }
    return true;
  }
  bool in_use() const noexcept { return used_ != 0; }

  void insert(Size number) noexcept {
    for (size_t i = 0; i < used_; ++i, number /= 64) {
      std::uint64_t& word = levels_[i].words[number / 64];
      const bool was_empty = word == 0;
      word |= std::uint64_t{1} << (number % 64);
      if (!was_empty) return;
    }
  }
  void erase(Size number) noexcept {
    for (size_t i = 0; i < used_; ++i, number /= 64) {
      std::uint64_t& word = levels_[i].words[number / 64];
      word &= ~(std::uint64_t{1} << (number % 64));
      if (word != 0) return;
    }
  }
  /// The largest number in the set that is at most `number`; there is one.
  Size at_or_before(Size number) const noexcept {
    for (size_t i = 0; i < used_; ++i) {
      const std::uint64_t bits = levels_[i].words[number / 64] & (~std::uint64_t{0} >> (63 - number % 64));
      if (bits == 0) {
        // Nothing in this word: look above for one that lies before it.
        if (number < 64) return 0;
        number = number / 64 - 1;
        continue;
      }
      number = number / 64 * 64 + static_cast<Size>(std::bit_width(bits) - 1);
      while (i-- > 0) {
        number = number * 64 + static_cast<Size>(std::bit_width(levels_[i].words[number]) - 1);
      }
      return number;
    }
    return 0;
  }

 private:
  struct Level {
    std::uint64_t* words = nullptr;
    Size bytes = 0;
  };
  std::array<Level, 8> levels_{};
  size_t used_ = 0;
};

}  // namespace memoir
