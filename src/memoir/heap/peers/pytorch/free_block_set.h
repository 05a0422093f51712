// SPDX-License-Identifier: Apache-2.0
//
// The free blocks of one stream in one pool, in the order (size, address) or (size, number), for best fit.
// Sizes are binned, 32 bins to a power of two and one per multiple of 512 bytes below 32 KiB; a bitmap finds
// the next bin that holds something (Masmano et al., TLSF, ECRTS 2004), and each bin is a treap (Seidel and
// Aragon 1996), so the order is exact. Most bins hold a block or two: an operation costs a few loads, and
// O(log n) when all sizes are alike.
#pragma once

#include <bit>

#include "memoir/heap/peers/pytorch/cached_blocks.h"

namespace memoir {

class FreeBlockSet {
 public:
  FreeBlockSet() noexcept : FreeBlockSet(false) {}
  explicit FreeBlockSet(bool by_number) noexcept : by_number_(by_number) {}

  void insert(CachedBlocks& blocks, BlockIndex index) noexcept;
  void erase(CachedBlocks& blocks, BlockIndex index) noexcept;

  /// The smallest block of at least `size` bytes, the first of several; 0 when there is none.
  BlockIndex best_fit(const CachedBlocks& blocks, Size size) const noexcept;
  /// The neighbours in the order; 0 at the end. `index` is in the set.
  BlockIndex next(const CachedBlocks& blocks, BlockIndex index) const noexcept;
  BlockIndex previous(const CachedBlocks& blocks, BlockIndex index) const noexcept;
  BlockIndex first(const CachedBlocks& blocks) const noexcept { return first_from(blocks, 0); }
  BlockIndex last(const CachedBlocks& blocks) const noexcept { return last_until(blocks, kBins); }

 private:
  static constexpr size_t kWords = 19;
  static constexpr size_t kBins = 64 * kWords;

  static size_t bin_of(Size size) noexcept {
    const Size units = size / 512;
    if (units < 64) return static_cast<size_t>(units);
    const int shift = static_cast<int>(std::bit_width(units)) - 6;
    const size_t bin = (static_cast<size_t>(shift) << 5) + static_cast<size_t>(units >> shift);
    return bin < kBins ? bin : kBins - 1;
  }
  /// What a search compares with: no block's record, so that it needs none.
  struct Key {
    Size size;
    std::uint64_t tie;
  };
  std::uint64_t tie_of(const CachedBlock& block) const noexcept {
    return by_number_ ? block.number : block.range.begin;
  }
  bool is_less(const CachedBlock& block, const Key& key) const noexcept {
    return block.range.size != key.size ? block.range.size < key.size : tie_of(block) < key.tie;
  }
  void split_tree(CachedBlocks& blocks, BlockIndex root, const Key& key, BlockIndex& less,
                  BlockIndex& rest) const noexcept;
  BlockIndex not_less(const CachedBlocks& blocks, BlockIndex root, const Key& key) const noexcept;

  /// The first block of the first bin from `bin` on that holds one.
  BlockIndex first_from(const CachedBlocks& blocks, size_t bin) const noexcept;
  /// The last block of the last bin before `bin` that holds one.
  BlockIndex last_until(const CachedBlocks& blocks, size_t bin) const noexcept;

  BlockIndex bins_[kBins] = {};  // roots
  std::uint64_t words_[kWords] = {};
  std::uint32_t summary_ = 0;
  bool by_number_;
};

}  // namespace memoir
