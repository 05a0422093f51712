// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a device pool in a row, by address: cut, joined, and found by size, by stream or by offset.
// It moves no memory and asks no stream: what is committed is the heap's business (device_pool_heap.h), where
// there is room across blocks is pool_windows.h's.
//
//   | live | free, slot 0 | free, slot 1 | recent | hole ...       slot: of the stream that used it last
//            in a bin       in a bin       in none   in a bin       recent: freed, but kept for its like
//
// Free neighbours join at once when all of their Use is the same; holes, when no stream or the same one used
// them. Blocks of different zones never join. Plain blocks lie beyond the row, each segment in a row of its
// own.
//
// Functions that take a record need reserve_records() before. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/free_bins.h"
#include "memoir/heap/index/offset_chains.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/index/start_set.h"

namespace memoir {

class PoolRow {
 public:
  using Index = std::uint32_t;                                       // of a block; 0 is none
  enum class State : std::uint8_t { kLive, kFree, kHole, kRecent };  // recent: free, but in no bin
  enum class Zone : std::uint8_t { kCommon, kSmall, kAside, kPlain };
  static constexpr std::uint16_t kNoSlot = ~std::uint16_t{0};

  struct Use {               // free blocks join when all of it is the same
    std::uint16_t slot = 0;  // of the stream that uses it or used it last
    State state = State::kFree;
    Zone zone = Zone::kCommon;

    /// All of it in one load or store: a processor waits when what it loads was stored in parts just before.
    std::uint32_t bits() const noexcept { return std::bit_cast<std::uint32_t>(*this); }
    void set(Use use) noexcept {
      const std::uint32_t bits = use.bits();
      std::memcpy(static_cast<void*>(this), &bits, sizeof bits);
    }
  };
  struct alignas(64) Block : BinLinks, Use {  // one line of the cache; `next` of a live one: in live_
    Range range;
    Size asked = 0;    // bytes that the live object asked for; of a hole: of its room, as it is binned
    Tick moment = 0;   // when it was freed; 0: no work may be queued that uses it
    Index before = 0;  // neighbours by address
    Index after = 0;
    std::uint32_t number = 0;  // for the heap: of the request
  };

  /// Blocks begin and end at multiples of `alignment`, a power of two; those below `small` bytes are small.
  PoolRow(Size alignment, Size small) noexcept : small_(small), shift_(std::countr_zero(alignment)) {}

  /// One hole of so many bytes, and the slot of stream 0. False when there is no metadata memory.
  bool begin(Size capacity) noexcept;

  // --- blocks ---

  /// The block at address 0; 0 before begin().
  Index head() const noexcept { return head_; }
  /// [0] stands for none: neither free nor a hole, of no size.
  Block& operator[](Index index) noexcept { return blocks_[index]; }
  const Block& operator[](Index index) const noexcept { return blocks_[index]; }
  size_t records() const noexcept { return blocks_.size(); }
  /// The block of the row that the offset lies in.
  Index block_at(Offset offset) const noexcept;
  /// The live block that begins there, or 0.
  Index find_live(Offset offset) const noexcept {
    return blocks_.empty() ? 0 : live_.find(blocks_.data(), offset);
  }
  /// The same, which is then neither live nor free: put_back() or settle() follows.
  Index take_live(Offset offset) noexcept { return live_.take(blocks_.data(), offset); }

  // --- streams ---

  /// The stream's slot; kNoSlot when there are too many streams, or no metadata memory.
  std::uint16_t slot_of(StreamId stream) noexcept {
    const std::uint16_t slot = slots_[stream % slots_.size()];
    return streams_[slot] == stream ? slot : find_slot(stream);
  }
  StreamId stream_of(std::uint16_t slot) const noexcept { return streams_[slot]; }
  std::uint16_t slots() const noexcept { return static_cast<std::uint16_t>(streams_.size()); }

  // --- giving out and taking back ---

  /// Room for so many records more.
  bool reserve_records(size_t count) noexcept { return blocks_.size() + count <= room_ || make_room(count); }
  /// The smallest free block of this slot and zone of at least `size` bytes, or 0.
  Index find(std::uint16_t slot, Zone zone, Size size) const noexcept {
    return bins_[bin_of(slot, zone)].find(blocks_.data(), size, units(size));
  }
  /// The free blocks of this slot and zone, and the holes of the zone, by size in units().
  const FreeBins& free_bins(std::uint16_t slot, Zone zone) const noexcept {
    return bins_[bin_of(slot, zone)];
  }
  /// A room is a row of free blocks and holes of one zone between live objects (or what was freed last). The
  /// range of the one that the block lies in, and its first block, as far as kReach blocks to both sides.
  struct Room {
    Range range;
    Index first = 0;
  };
  Room room_of(Index index) const noexcept;
  /// Holes whose room may have `size` bytes or more, smaller rooms first: at most found.size() of them. Rooms
  /// that shrank since they were looked at last are found as well: ask fits_still().
  template <size_t kMost>
  size_t find_holes(Zone zone, Size size, std::array<Index, kMost>& found) const noexcept {
    size_t count = 0;
    holes_[static_cast<size_t>(zone)].visit_upwards(blocks_.data(), units(size), static_cast<int>(kMost),
                                                    [&](Index index) {
                                                      found[count++] = index;
                                                      return true;
                                                    });
    return count;
  }
  /// Whether the hole's room has so many bytes; if not, it is not found for that size again.
  bool fits_still(Index hole, Size size) noexcept;
  /// Whether a room with a hole in it may hold `size` bytes, and has fewer than `most`.
  bool has_smaller_room(Zone zone, Size size, Size most) const noexcept {
    bool any = false;
    if (holes_count_ > unused_ranges_) {
      holes_[static_cast<size_t>(zone)].visit_upwards(blocks_.data(), units(size), 1, [&](Index index) {
        any = blocks_[index].asked < most;
        return false;
      });
    }
    return any;
  }
  const Block* blocks() const noexcept { return blocks_.data(); }
  Size units(Size size) const noexcept { return size >> shift_; }
  /// The block that the offset lies in, at or after `index`, which lies before it: a walk.
  Index block_from(Index index, Offset offset) const noexcept {
    while (blocks_[index].range.end() <= offset) index = blocks_[index].after;
    return index;
  }
  /// A block of exactly this size that the slot freed last, live now; or 0.
  Index take_recent(Size size, Size asked, std::uint16_t slot) noexcept;
  /// Which end of a free block.
  enum class End : bool { kLow, kHigh };
  /// Gives out a part of a free block, at one of its ends. The block that is live now.
  Index take_part(Index index, Size size, Size asked, std::uint16_t slot, End end) noexcept;
  /// The same for a block that find() gave for this slot and zone: for the fast path.
  Index take_found(Index index, Size size, Size asked, std::uint16_t slot, Zone zone, End end) noexcept {
    return take(bins_[bin_of(slot, zone)], index, size, asked, slot, zone, end);
  }
  /// Gives out a range that lies in a row of free blocks and holes of one zone, beginning in `first`. What it
  /// touches of the holes, in whole granules, is committed already, and `ahead` bytes more of the hole that
  /// it ends in. The block that is live now.
  Index take_window(Index first, Range range, Size granule, Size asked, std::uint16_t slot,
                    Size ahead = 0) noexcept;
  /// Takes back what take_live() gave, with its moment set.
  void put_back(Index index) noexcept;
  /// Joins what was freed last with its neighbours.
  void forget_recent() noexcept;

  // --- for the heap's own cuts ---

  /// Cuts a block that is in no bin; gives back the second part, in no bin either.
  Index cut(Index index, Offset at) noexcept;
  /// Makes a block that is in no bin live.
  void begin_life(Index index, Size asked, std::uint16_t slot, Zone zone) noexcept {
    Block& block = blocks_[index];
    block.set({slot, State::kLive, zone});
    block.asked = asked;
    block.number = 0;
    live_.insert(blocks_.data(), index);
  }
  /// Joins a free block or a hole, which is in no bin, with its neighbours, and puts what comes of it in its
  /// bin.
  Index settle(Index index) noexcept;
  /// A part of a free block becomes a hole; gives back the hole.
  Index make_hole(Index index, Range range) noexcept;
  /// Joins a free block with the free one after it, whose stream it is of then, from this moment on.
  void join_free(Index index, Tick moment) noexcept;
  /// All that was queued up to this moment is done, on every stream: free neighbours join whatever streams
  /// freed them, those that lie side by side as well as those to come.
  void note_done(Tick moment) noexcept {
    if (moment <= done_) return;
    done_ = moment;
    if (borders_noted_ != 0) join_over_borders();
  }

  // --- zones ---

  /// From now on finds blocks by their offset in a few steps; false when there is no metadata memory.
  bool keep_starts() noexcept;
  /// All blocks of the zone that is set aside are common again.
  void end_aside() noexcept;
  /// The first `size` bytes of a hole are set aside.
  void set_aside(Index hole, Size size) noexcept;
  /// The last eighth of the last block becomes the zone of small objects, if that is a hole and `least` bytes
  /// or more; from a multiple of `granule` on. A walk, to be done once; takes a record.
  bool begin_small(Size least, Size granule) noexcept;
  /// A free block beyond the row.
  Index add_plain(Range range, std::uint16_t slot) noexcept;
  /// Ends a free block beyond the row.
  void drop_plain(Index index) noexcept;

 private:
  static constexpr size_t kZones = 4;
  static constexpr int kRecentBits = 5;
  static constexpr size_t kBorders = 256;
  static constexpr int kReach = 16;  // blocks

  std::uint16_t find_slot(StreamId stream) noexcept;
  static size_t bin_of(std::uint16_t slot, Zone zone) noexcept {
    return slot * kZones + static_cast<size_t>(zone);
  }
  Index& recent_of(Size size, std::uint16_t slot) noexcept {
    return recent_[((units(size) + slot) * 0x9e3779b97f4a7c15ull) >> (64 - kRecentBits)];
  }
  bool keeps_start_of(Zone zone) const noexcept { return starts_.in_use() && zone != Zone::kPlain; }

  Index take(FreeBins& bins, Index index, Size size, Size asked, std::uint16_t slot, Zone zone,
             End end) noexcept;
  bool make_room(size_t count) noexcept;
  Index take_record() noexcept {  // reserve_records() was asked
    const Index index = unused_;
    if (index == 0) [[unlikely]]
      return new_record();
    unused_ = blocks_[index].after;
    return index;
  }
  Index new_record() noexcept;
  void drop_record(Index index) noexcept {
    blocks_[index].range.size = 0;
    blocks_[index].after = unused_;
    unused_ = index;
  }
  void join_after(Index index) noexcept;
  bool can_join(Index left, Index right) const noexcept;
  FreeBins& bins_for(Index index) noexcept {
    const Block& block = blocks_[index];
    return block.state == State::kHole ? holes_[static_cast<size_t>(block.zone)]
                                       : bins_[bin_of(block.slot, block.zone)];
  }
  void put_in_bin(Index index) noexcept;
  void take_from_bin(Index index) noexcept;
  Index settle_free(Index index) noexcept {
    const Index settled = join_free_neighbours(index);
    if (holes_count_ > unused_ranges_) [[unlikely]]
      widen_room(settled);
    return settled;
  }
  Index join_free_neighbours(Index index) noexcept;
  void widen_room(Index index) noexcept;
  Index settle_hole(Index index) noexcept;
  void join_over_borders() noexcept;
  Index settle_at_border(Index index) noexcept;
  void forget_start(Offset begin) noexcept;
  void note_start(Offset begin, Index index) noexcept;

  Size small_;
  int shift_;                             // log2 of the alignment
  std::array<std::uint16_t, 8> slots_{};  // of the last requests, by stream
  MetadataArray<Block> blocks_;
  size_t room_ = 0;                     // blocks_ may have so many records without a look at other tables
  MetadataArray<FreeBins> bins_;        // per slot and zone
  MetadataArray<StreamId> streams_;     // per slot, in order of appearance
  std::array<FreeBins, kZones> holes_;  // by the bytes of the room that they lie in
  size_t holes_count_ = 0;
  size_t unused_ranges_ = 1;  // of the holes: the last of a zone, of addresses that nobody has used
  OffsetChains live_;
  std::array<Index, size_t{1} << kRecentBits> recent_{};  // freed last, not joined yet, by size and stream
  StartSet starts_;  // of blocks in the row, in units; kept, as is by_start_, since keep_starts()
  OffsetTable by_start_;
  Size capacity_ = 0;
  Tick done_ = 0;  // see note_done()
  std::array<Index, kBorders>
      borders_{};  // blocks that lay next to one of another stream, when they were freed
  size_t borders_noted_ = 0;
  Index head_ = 0;    // the block at offset 0
  Index unused_ = 0;  // records of joined blocks, linked by `after`
};

// --- the fast path, which the heap has in its own functions ---

inline PoolRow::Index PoolRow::take_recent(Size size, Size asked, std::uint16_t slot) noexcept {
  Index& recent = recent_of(size, slot);
  const Index index = recent;
  if (blocks_[index].range.size != size || blocks_[index].slot != slot) return 0;
  recent = 0;
  begin_life(index, asked, slot, Zone::kCommon);
  return index;
}

[[gnu::always_inline]] inline PoolRow::Index PoolRow::take(FreeBins& bins, Index index, Size size, Size asked,
                                                           std::uint16_t slot, Zone zone, End end) noexcept {
  Block* const blocks = blocks_.data();
  Block& whole = blocks[index];
  const Range range = whole.range;
  if (range.size == size) {
    bins.erase(blocks, index);
  } else {
    const Index part = take_record();
    Block& taken = blocks[part];
    whole.range.size -= size;
    taken.range.size = size;
    taken.zone = zone;
    if (end == End::kHigh) {
      taken.range.begin = range.end() - size;
      taken.before = index;
      taken.after = whole.after;
      blocks[whole.after].before = part;
      whole.after = part;
    } else {
      taken.range.begin = range.begin;
      taken.before = whole.before;
      taken.after = index;
      blocks[whole.before].after = part;
      whole.before = part;
      whole.range.begin = range.begin + size;
      head_ = head_ == index ? part : head_;
    }
    if (keeps_start_of(zone)) [[unlikely]] {
      if (taken.range.begin == range.begin) {
        by_start_.take(range.begin);
        by_start_.insert(range.begin, part);
        note_start(whole.range.begin, index);
      } else {
        note_start(taken.range.begin, part);
      }
    }
    bins.resize(blocks, index, units(whole.range.size));
    index = part;
  }
  begin_life(index, asked, slot, zone);
  return index;
}

/// As few lists as can be are touched: a neighbour that grows stays in its own, if that is still the right
/// one.
[[gnu::always_inline]] inline PoolRow::Index PoolRow::join_free_neighbours(Index index) noexcept {
  Block* const blocks = blocks_.data();
  Block& block = blocks[index];
  const Index before = block.before, after = block.after;
  Block &left = blocks[before], &right = blocks[after];
  const bool joins_left = left.bits() == block.bits(), joins_right = right.bits() == block.bits();
  const bool may_join_left = !joins_left & (left.state == State::kFree);
  const bool may_join_right = !joins_right & (right.state == State::kFree);
  if (may_join_left | may_join_right) [[unlikely]]
    return settle_at_border(index);
  FreeBins& bins = bins_[bin_of(block.slot, block.zone)];
  if (!joins_left && !joins_right) {
    bins.insert(blocks, index, units(block.range.size));
    return index;
  }
  if (keeps_start_of(block.zone)) [[unlikely]] {
    if (joins_left) forget_start(block.range.begin);
    if (joins_right) forget_start(right.range.begin);
  }
  if (!joins_left) {
    right.range = {block.range.begin, right.range.size + block.range.size};
    right.moment = std::max(right.moment, block.moment);
    right.before = before;
    blocks[before].after = after;
    head_ = head_ == index ? after : head_;
    if (keeps_start_of(block.zone)) [[unlikely]] {
      by_start_.take(block.range.begin);
      by_start_.insert(block.range.begin, after);
    }
    bins.resize(blocks, after, units(right.range.size));
    drop_record(index);
    return after;
  }
  left.range.size += block.range.size;
  left.moment = std::max(left.moment, block.moment);
  left.after = after;
  if (joins_right) {
    bins.erase(blocks, after);
    left.range.size += right.range.size;
    left.moment = std::max(left.moment, right.moment);
    left.after = right.after;
    drop_record(after);
  }
  blocks[left.after].before = before;
  bins.resize(blocks, before, units(left.range.size));
  drop_record(index);
  return before;
}

[[gnu::always_inline]] inline void PoolRow::put_back(Index index) noexcept {
  Block& block = blocks_[index];
  Index done = index;  // the block that is joined with its neighbours now
  if (block.range.size < small_ && block.zone == Zone::kCommon) {
    block.set({block.slot, State::kRecent, Zone::kCommon});
    done = std::exchange(recent_of(block.range.size, block.slot), index);
    if (done == 0) return;
  }
  blocks_[done].set({blocks_[done].slot, State::kFree, blocks_[done].zone});
  settle_free(done);
}

}  // namespace memoir
