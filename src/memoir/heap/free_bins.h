// SPDX-License-Identifier: Apache-2.0
//
// Free blocks by size, for a best fit that takes the same few steps however many blocks there are: two-level
// segregated fit (Masmano, Ripoll, Crespo, Real, "TLSF: a new dynamic memory allocator for real-time systems",
// ECRTS 2004), read as a best fit inside its classes.
//
//   units   1, 2, ... 63 | 64-65, 66-67, ... | 128-131, 132-135, ... | ...    32 classes in each doubling
//   class   1, 2, ... 63 | 64,    65,    ... | 96,      97,      ... | ...    a bit each: is its list empty?
//
// The blocks belong to the owner, which has them in one array; lists are linked through their indices.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir {

/// The part of a block that bins need: Block derives from it.
struct BinLinks {
  std::uint32_t previous = 0;  // in the list of its class; 0 is none
  std::uint32_t next = 0;
};

/// Trivially copyable and empty when zeroed, so that it can live in metadata memory. Not thread-safe.
class FreeBins {
 public:
  using Index = std::uint32_t;  // of a block; 0 is none

  /// `units`: its size in the pool's unit, > 0. The block is in no list.
  template <class Block>
  void insert(Block* blocks, Index index, Size units) noexcept {
    const std::uint32_t bin = class_of(units);
    Index& head = heads_[bin];
    blocks[index].previous = 0;
    blocks[index].next = head;
    if (head != 0) blocks[head].previous = index;
    head = index;
    words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    summary_ |= std::uint64_t{1} << (bin / 64);
  }

  /// `units` is what it was inserted with.
  template <class Block>
  void erase(Block* blocks, Index index, Size units) noexcept {
    const Index previous = blocks[index].previous, next = blocks[index].next;
    if (next != 0) blocks[next].previous = previous;
    if (previous != 0) {
      blocks[previous].next = next;
      return;
    }
    const std::uint32_t bin = class_of(units);
    heads_[bin] = next;
    if (next != 0) return;
    words_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
    if (words_[bin / 64] == 0) summary_ &= ~(std::uint64_t{1} << (bin / 64));
  }

  /// The same block, which had `before` units when it was put here, has `after` units now.
  template <class Block>
  void resize(Block* blocks, Index index, Size before, Size after) noexcept {
    if (class_of(before) == class_of(after)) return;
    erase(blocks, index, before);
    insert(blocks, index, after);
  }

  /// A smallest block of at least `size` bytes, as far as the first kLooks of a class tell; 0 when no block
  /// is found, though one in the very class of the size may be overlooked.
  template <class Block>
  Index find(const Block* blocks, Size size, Size units) const noexcept {
    const std::uint32_t bin = class_of(units);
    if (summary_ == 0) return 0;
    if (const Index head = heads_[bin]; head != 0) {
      if (units < kExact) return head;
      if (const Index found = smallest(blocks, head, size); found != 0) return found;
    }
    std::uint32_t word = bin / 64;
    std::uint64_t bits = words_[word] & (~std::uint64_t{1} << (bin % 64));
    if (bits == 0) {
      const std::uint64_t above = summary_ & (~std::uint64_t{1} << word);
      if (above == 0) return 0;
      word = static_cast<std::uint32_t>(std::countr_zero(above));
      bits = words_[word];
    }
    const Index head = heads_[word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits))];
    return blocks[head].next == 0 ? head : smallest(blocks, head, size);
  }

 private:
  static constexpr Size kExact = 64;  // below, a class holds one size
  static constexpr int kLooks = 24;
  static constexpr std::uint32_t kClasses = 64 + 32 * (64 - 6);

  static std::uint32_t class_of(Size units) noexcept {
    if (units < kExact) return static_cast<std::uint32_t>(units);
    const auto log = static_cast<std::uint32_t>(std::bit_width(units) - 1);
    return 64 + (log - 6) * 32 + (static_cast<std::uint32_t>(units >> (log - 5)) & 31);
  }

  template <class Block>
  Index smallest(const Block* blocks, Index head, Size size) const noexcept {
    Index best = 0;
    Size least = ~Size{0};
    int looks = kLooks;
    for (Index index = head; index != 0 && looks-- != 0; index = blocks[index].next) {
      const Size other = blocks[index].range.size;
      if (other < size || other > least ||
          (other == least && blocks[index].range.begin > blocks[best].range.begin)) {
        continue;
      }
      best = index;
      least = other;
    }
    return best;
  }

  std::uint64_t summary_ = 0;  // a bit per word that is not 0
  std::array<std::uint64_t, (kClasses + 63) / 64> words_{};
  std::array<Index, kClasses> heads_{};
};

}  // namespace memoir
