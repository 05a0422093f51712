// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a caching allocator: pieces of segments, each live, free, or (in an expandable area) without
// memory. A block is a record of 64 bytes; a table finds the live one that begins at an offset.
//
//   segment | live | free     | live | free |      every block knows both its neighbours in its segment;
//             ^ no two free blocks touch           a segment that is one block has none
//
// Nothing here throws or calls malloc. Not thread-safe.
#pragma once

#include <algorithm>
#include <utility>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

using BlockIndex = std::uint32_t;  // of a record; 0 is none

struct alignas(64) CachedBlock {  // a cache line: metadata memory begins at a page
  Range range;                    // size 0: the record is not in use
  Size asked = 0;                 // bytes that the live object asked for; 0 when not live
  BlockIndex before = 0;          // neighbours in the segment
  BlockIndex after = 0;
  BlockIndex left = 0;  // in a set of free blocks, or of blocks without memory
  BlockIndex right = 0;
  std::uint32_t priority = 0;
  std::uint32_t set = 0;       // whose it is: an index of the pools' sets
  std::uint32_t inserted = 0;  // searches of its pool before it became free
  std::uint32_t number = 0;    // grows with every record that is taken
  bool mapped = true;          // has memory

  bool is_live() const noexcept { return asked != 0; }
  bool is_whole_segment() const noexcept { return before == 0 && after == 0; }
};
static_assert(sizeof(CachedBlock) == 64);

class CachedBlocks {
 public:
  CachedBlocks() noexcept { ok_ = records_.push_back({}) && slots_.assign(kFirstSlots, {}); }

  /// False when there was no metadata memory; then nothing else may be called but size().
  bool ok() const noexcept { return ok_; }

  CachedBlock& operator[](BlockIndex index) noexcept { return records_[index]; }
  const CachedBlock& operator[](BlockIndex index) const noexcept { return records_[index]; }
  /// Records, used and unused ones; [0] stands for none.
  size_t size() const noexcept { return records_.size(); }

  /// A fresh record, or 0 when there is no metadata memory.
  BlockIndex take(Range range, std::uint32_t set) noexcept;
  void give_back(BlockIndex index) noexcept;

  /// Makes room for so many records more, used later by take() and split(); false when there is no memory.
  bool reserve(size_t count) noexcept {
    const size_t wanted = records_.size() + count;
    return wanted <= records_.capacity() || records_.reserve(std::max(wanted, 2 * records_.capacity()));
  }
  /// Makes room for one more live block; false when there is no metadata memory.
  bool reserve_live() noexcept { return live_ + live_ / 2 < slots_.size() || grow(); }
  bool reserve_live(size_t count) noexcept {
    while ((live_ + count) * 3 / 2 >= slots_.size()) {
      if (!grow()) return false;
    }
    return true;
  }
  /// The block becomes live; the caller has reserved room.
  void insert_live(BlockIndex index) noexcept;
  /// The live block that begins there, or 0.
  BlockIndex find_live(Offset offset) const noexcept {
    const size_t at = find_slot(offset);
    return at == kNoSlot ? 0 : slots_[at].index;
  }
  /// The same; it no longer is in the table.
  BlockIndex take_live(Offset offset) noexcept;

  /// Joins `index` and its neighbour `absorbed`, which is in no set, and drops the record of the latter.
  void absorb(BlockIndex index, BlockIndex absorbed) noexcept;
  /// Cuts a block after `size` bytes; the second part gets a new record. 0 when there is no metadata memory.
  BlockIndex split(BlockIndex index, Size size) noexcept;
  /// Makes two records change their numbers.
  void swap_numbers(BlockIndex a, BlockIndex b) noexcept {
    std::swap(records_[a].number, records_[b].number);
  }

 private:
  static constexpr size_t kFirstSlots = 512;
  struct Slot {  // open addressing, linear probing (Knuth, The Art of Computer Programming 3, 6.4)
    std::uint32_t hash = 0;  // its high bits name the slot where the search begins
    BlockIndex index = 0;
  };

  static std::uint32_t hash_of(Offset offset) noexcept {
    return static_cast<std::uint32_t>(offset / 512 * 0x9e3779b97f4a7c15ull >> 32);
  }
  static constexpr size_t kNoSlot = ~size_t{0};
  size_t home_of(std::uint32_t hash) const noexcept { return hash >> shift_; }
  size_t find_slot(Offset offset) const noexcept;
  bool grow() noexcept;
  void put(Slot slot) noexcept;

  MetadataArray<CachedBlock> records_;
  MetadataArray<Slot> slots_;
  std::uint32_t taken_ = 0;  // records, ever
  BlockIndex unused_ = 0;    // records given back, linked by `after`
  size_t live_ = 0;
  int shift_ = 32 - 9;  // 32 - log2 of the slots
  bool ok_ = false;
};

}  // namespace memoir
