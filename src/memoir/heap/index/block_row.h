// SPDX-License-Identifier: Apache-2.0
//
// The records of a pool's blocks. Blocks that were cut from one segment know their neighbours by address, so
// that cutting and joining take no search.
//
//   segment   | block | block     | block |        before/after link the blocks of one segment;
//              0<------>  ...         --->0        0 at both its ends
//
// A pool's block is a struct derived from Block, and may be in one tree at a time (treap.h). Records of
// absorbed blocks are used again. Not thread-safe.
#pragma once

#include <cstdint>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/index/treap.h"

namespace memoir {

struct Block {
  Range range;
  std::uint32_t before = 0;  // neighbours by address in the same segment
  std::uint32_t after = 0;   // of an unused record: the next unused one
  std::uint32_t left = 0;    // children in a tree
  std::uint32_t right = 0;
  std::uint32_t priority = 0;
};

template <class PoolBlock>
class BlockRow {
 public:
  using Index = std::uint32_t;  // of a block; 0 is none

  /// Reserves room for the first blocks. False when there was no metadata memory.
  bool start(size_t count = 64) noexcept { return blocks_.reserve(count + 1) && blocks_.push_back({}); }
  bool ok() const noexcept { return !blocks_.empty(); }

  PoolBlock& operator[](Index index) noexcept { return blocks_[index]; }
  const PoolBlock& operator[](Index index) const noexcept { return blocks_[index]; }
  PoolBlock* data() noexcept { return blocks_.data(); }
  const PoolBlock* data() const noexcept { return blocks_.data(); }

  /// Room for the next `count` calls of add() and cut(), which then cannot fail.
  bool reserve(size_t count) noexcept {
    return blocks_.capacity() - blocks_.size() >= count || blocks_.reserve(2 * blocks_.capacity() + count);
  }
  /// A new block without neighbours. The caller has reserved room.
  Index add(Range range) noexcept {
    Index index = unused_;
    if (index != 0) {
      unused_ = blocks_[index].after;
      blocks_[index] = {};
    } else {
      index = static_cast<Index>(blocks_.size());
      blocks_.push_back({});
    }
    blocks_[index].range = range;
    blocks_[index].priority = treap_priority(index);
    return index;
  }
  /// Cuts a block after `size` bytes; the new second part. The caller has reserved room.
  Index cut(Index index, Size size) noexcept {
    const Range whole = blocks_[index].range;
    const Index rest = add({whole.begin + size, whole.size - size});
    PoolBlock& first = blocks_[index];
    first.range.size = size;
    blocks_[rest].before = index;
    blocks_[rest].after = first.after;
    if (first.after != 0) blocks_[first.after].before = rest;
    first.after = rest;
    return rest;
  }
  /// Joins the block after this one to it, and takes it out of the row: its record is the caller's to drop().
  Index join_after(Index index) noexcept {
    PoolBlock& first = blocks_[index];
    const Index absorbed = first.after;
    first.range.size += blocks_[absorbed].range.size;
    first.after = blocks_[absorbed].after;
    if (first.after != 0) blocks_[first.after].before = index;
    return absorbed;
  }
  /// Ends a record that is in no tree and no row.
  void drop(Index index) noexcept {
    blocks_[index].after = unused_;
    unused_ = index;
  }
  bool is_whole(Index index) const noexcept {
    return blocks_[index].before == 0 && blocks_[index].after == 0;
  }

 private:
  MetadataArray<PoolBlock> blocks_;  // [0] stands for none
  Index unused_ = 0;                 // dropped records, linked by `after`
};

}  // namespace memoir
