// SPDX-License-Identifier: Apache-2.0
//
// From the offset of a live object to its record: a hash table with linear probing, whose erase moves the
// entries that follow back (Knuth, The Art of Computer Programming 3, 6.4, algorithm R), so that it never
// fills with tombstones. In metadata memory, at most half full. Not thread-safe.
#pragma once

#include <bit>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class OffsetTable {
 public:
  using Index = std::uint32_t;  // of a record; 0 is none

  /// Room for `count` offsets in all. False when there is no metadata memory: nothing changed.
  bool reserve(size_t count) noexcept {
    if (2 * count <= entries_.size()) return true;
    MetadataArray<Entry> larger;
    if (!larger.assign(std::bit_ceil(2 * count < 512 ? size_t{512} : 2 * count), {})) return false;
    std::swap(entries_, larger);
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(entries_.size()));
    for (const Entry& entry : larger) {
      if (entry.index != 0) place(entry);
    }
    return true;
  }
  /// Room for one more.
  bool reserve_one() noexcept { return reserve(size_ + 1); }

  /// Enters an offset that is not in the table; the caller has reserved room for it.
  void insert(Offset offset, Index index) noexcept {
    place({offset, index});
    ++size_;
  }
  /// The record at this offset, or 0.
  Index find(Offset offset) const noexcept {
    if (entries_.empty()) return 0;
    return entries_[slot_of(offset)].index;
  }
  /// Takes the offset out; the record that was there, or 0.
  Index take(Offset offset) noexcept {
    if (entries_.empty()) return 0;
    size_t hole = slot_of(offset);
    const Index index = entries_[hole].index;
    if (index == 0) return 0;
    for (size_t at = next(hole); entries_[at].index != 0; at = next(at)) {
      const size_t home = home_of(entries_[at].offset);
      // An entry may move back into the hole unless its home lies behind the hole, in (hole, at].
      if (((at - home) & mask()) < ((at - hole) & mask())) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole].index = 0;
    --size_;
    return index;
  }
  size_t size() const noexcept { return size_; }

 private:
  struct Entry {
    Offset offset = 0;
    Index index = 0;
  };

  size_t mask() const noexcept { return entries_.size() - 1; }
  size_t next(size_t at) const noexcept { return (at + 1) & mask(); }
  size_t home_of(Offset offset) const noexcept {  // Fibonacci hashing: offsets are multiples of something
    return static_cast<size_t>((offset * 0x9e3779b97f4a7c15ull) >> shift_);
  }
  size_t slot_of(Offset offset) const noexcept {
    size_t at = home_of(offset);
    while (entries_[at].index != 0 && entries_[at].offset != offset) at = next(at);
    return at;
  }
  void place(const Entry& entry) noexcept {
    size_t at = home_of(entry.offset);
    while (entries_[at].index != 0) at = next(at);
    entries_[at] = entry;
  }

  MetadataArray<Entry> entries_;  // a power of two of them; index 0 is empty
  unsigned shift_ = 63;
  size_t size_ = 0;
};

}  // namespace memoir
