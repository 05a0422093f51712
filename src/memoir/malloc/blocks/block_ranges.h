// SPDX-License-Identifier: Apache-2.0
//
// Large blocks where there are many of them. A process may have 65,530 mappings, and each block that is
// unmapped between two others leaves one more. So from some number on, blocks are pieces of ranges that are
// mapped at once, each for 8 blocks or more; a freed piece gives its pages back and stays mapped, and a range
// without blocks is unmapped.
//
//   range   | 256 granules |     of 4 KiB, 64 KiB, 1 MiB or 16 MiB: a block has at most 32 of them
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/lifetime/slot_bits.h"

namespace memoir::malloc_ {

/// Not thread-safe; changes errno.
class BlockRanges {
 public:
  struct Piece {
    std::uintptr_t address = 0;
    std::uint32_t range = 0;  // never 0 of a piece
    bool zero = false;        // its bytes are known to be zero
  };
  /// Room for `size` bytes, whole pages. No address: the system refuses, or the block is too large, or its
  /// alignment.
  Piece take(Size size, Size alignment) noexcept;
  /// A piece that was taken for `size` bytes is free. `gone`: it has no pages.
  void put(std::uint32_t range, std::uintptr_t address, Size size, bool gone) noexcept;
  /// The piece from now on has room for `to` bytes instead of `size`. False (and nothing changed) where
  /// others are behind it. `gone`: what it loses has no pages.
  bool resize(std::uint32_t range, std::uintptr_t address, Size size, Size to, bool gone) noexcept;
  /// Unmaps ranges without blocks; bytes.
  Size unmap_empty() noexcept;

 private:
  struct Range {
    std::uintptr_t address = 0;  // 0: none
    size_t kind = 0;
    SlotBits used, touched;
    std::uint16_t used_count = 0;
    std::uint16_t longest = 0;  // no run of free granules is longer
  };
  static constexpr size_t kKinds = 4;  // of granules
  static size_t kind_for(Size size) noexcept;
  static Size granule(const Range& range) noexcept;
  bool add(size_t kind) noexcept;
  static SlotBits granules(const Range& range, std::uintptr_t address, Size size) noexcept;

  MetadataArray<Range> ranges_;
  size_t empty_ = 0;           // ranges without blocks
  size_t first_[kKinds] = {};  // the ranges before it have no room for any block
};

}  // namespace memoir::malloc_
