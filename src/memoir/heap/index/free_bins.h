// SPDX-License-Identifier: Apache-2.0
//
// Free blocks by size, for a best fit that takes the same few steps however many blocks there are: two-level
// segregated fit (Masmano, Ripoll, Crespo, Real, "TLSF: a new dynamic memory allocator for real-time
// systems", ECRTS 2004), read as a best fit inside its classes.
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

/// The part of a block that bins need: Block derives from it. The record at index 0 stands for none; bins
/// write its links, which mean nothing, to be spared asking whether there is a neighbour.
struct BinLinks {
  std::uint32_t previous = 0;  // in the list of its class; 0 is none
  std::uint32_t next = 0;
  std::uint32_t bin = 0;  // the class
};

/// Trivially copyable and empty when zeroed, so that it can live in metadata memory. Not thread-safe.
class FreeBins {
 public:
  using Index = std::uint32_t;  // of a block; 0 is none

  /// `units`: its size in the pool's unit, > 0. The block is in no list.
  template <class Block>
  void insert(Block* blocks, Index index, Size units) noexcept {
    enter(blocks, index, class_of(units));
  }

  template <class Block>
  void erase(Block* blocks, Index index) noexcept {
    const Index previous = blocks[index].previous, next = blocks[index].next;
    const std::uint32_t bin = blocks[index].bin, word = bin / 64;
    blocks[next].previous = previous;
    if (previous != 0) [[unlikely]] {
      blocks[previous].next = next;
      return;
    }
    heads_[bin] = next;
    const std::uint64_t bits = words_[word] & ~(std::uint64_t{next == 0} << (bin % 64));
    words_[word] = bits;
    summary_ &= ~(std::uint64_t{bits == 0} << word);
  }

  /// A block that is here has `units` now.
  template <class Block>
  void resize(Block* blocks, Index index, Size units) noexcept {
    const std::uint32_t bin = class_of(units);
    if (bin == blocks[index].bin) return;
    erase(blocks, index);
    enter(blocks, index, bin);
  }

  /// A smallest block of at least `size` bytes, as far as the first kLooks of a class tell; 0 when no block
  /// is found, though one in the class of the size itself may be overlooked.
  template <class Block>
  Index find(const Block* blocks, Size size, Size units) const noexcept {
    const std::uint32_t bin = class_of(units);
    if (const Index head = heads_[bin]; head != 0) {
      if (units < kExact) return head;
      if (const Index found = smallest(blocks, head, size); found != 0) return found;
    }
    // The next class up that has any: in the same word, or in the next word that has one.
    std::uint32_t word = bin / 64;
    std::uint64_t bits = words_[word] & (~std::uint64_t{1} << (bin % 64));
    if (bits == 0) {
      const std::uint64_t above = summary_ & (~std::uint64_t{1} << word);
      if (above == 0) return 0;
      word = static_cast<std::uint32_t>(std::countr_zero(above));
      bits = words_[word];
    }
    return smallest(blocks, heads_[word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits))], size);
  }

  /// Visits blocks as visit(index), smaller classes first, from the class of `units` on, or larger ones first
  /// down to it; at most `most` of them, and until it says false. The visitor changes nothing here.
  template <class Block, class Visit>
  void visit_upwards(const Block* blocks, Size units, int most, Visit&& visit) const {
    const std::uint32_t bin = class_of(units);
    std::uint32_t word = bin / 64;
    std::uint64_t bits = words_[word] & (~std::uint64_t{0} << (bin % 64));
    for (;;) {
      for (; bits != 0; bits &= bits - 1) {
        const auto head = heads_[word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits))];
        for (Index index = head; index != 0; index = blocks[index].next) {
          if (most-- == 0 || !visit(index)) return;
        }
      }
      const std::uint64_t above = summary_ & (~std::uint64_t{1} << word);
      if (above == 0) return;
      word = static_cast<std::uint32_t>(std::countr_zero(above));
      bits = words_[word];
    }
  }
  template <class Block, class Visit>
  void visit_downwards(const Block* blocks, Size units, int most, Visit&& visit) const {
    const std::uint32_t last = class_of(units);
    std::uint64_t left = summary_;
    while (left != 0) {
      const std::uint32_t word = 63 - static_cast<std::uint32_t>(std::countl_zero(left));
      left &= ~(std::uint64_t{1} << word);
      for (std::uint64_t bits = words_[word]; bits != 0;) {
        const std::uint32_t bit = 63 - static_cast<std::uint32_t>(std::countl_zero(bits));
        bits &= ~(std::uint64_t{1} << bit);
        if (word * 64 + bit < last) return;
        for (Index index = heads_[word * 64 + bit]; index != 0; index = blocks[index].next) {
          if (most-- == 0 || !visit(index)) return;
        }
      }
    }
  }

 private:
  static constexpr Size kExact = 64;  // below, a class holds one size
  static constexpr int kLooks = 24;
  static constexpr std::uint32_t kClasses = 64 + 32 * (64 - 6);

  static std::uint32_t class_of(Size units) noexcept {
    // Below kExact the shift is 0, and the class is the number of units.
    const std::uint32_t shift = static_cast<std::uint32_t>(std::countl_zero(units | (kExact / 2)) ^ 63) - 5;
    return 32 * shift + static_cast<std::uint32_t>(units >> shift);
  }

  template <class Block>
  void enter(Block* blocks, Index index, std::uint32_t bin) noexcept {
    const Index head = heads_[bin];
    blocks[index].previous = 0;
    blocks[index].next = head;
    blocks[index].bin = bin;
    blocks[head].previous = index;
    heads_[bin] = index;
    words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    summary_ |= std::uint64_t{1} << (bin / 64);
  }

  template <class Block>
  Index smallest(const Block* blocks, Index head, Size size) const noexcept {
    Index index = blocks[head].next;
    Size least = blocks[head].range.size;  // of none: 0
    if (index == 0) [[likely]]
      return least < size ? 0 : head;
    Index best = least < size ? 0 : head;
    least = least < size ? ~Size{0} : least;
    for (int looks = kLooks - 1; index != 0 && looks-- != 0; index = blocks[index].next) {
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
