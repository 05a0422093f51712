// SPDX-License-Identifier: Apache-2.0
//
// From the offset of a live object to its record, for records that are in no list while they live: a hash
// table whose chains go through the records' own links. A place in the table is four bytes, entering and
// taking out the newest of a chain ask no question that a processor could guess wrong, and nothing ever moves
// but at growth.
//
//   places   | 7 | 0 | 12 | ...        at least two for each record
//              |       |
//   records    7 -> 3  12              linked by `next`, newest first
//
// The records belong to the owner, which has them in one array: any struct with `range` and `next`
// (std::uint32_t); [0] is none, and its range.begin is not looked at. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class OffsetChains {
 public:
  using Index = std::uint32_t;  // of a record; 0 is none

  /// Room for `count` records in all. False when there is no metadata memory: nothing changed.
  template <class Record>
  bool reserve(Record* records, size_t count) noexcept {
    if (2 * count <= heads_.size()) return true;
    MetadataArray<Index> larger;
    if (!larger.assign(std::bit_ceil(2 * count), 0)) return false;
    std::swap(heads_, larger);
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(heads_.size()));
    for (Index index : larger) {
      while (index != 0) insert(records, std::exchange(index, records[index].next));
    }
    return true;
  }

  /// Enters a record whose offset is not in the table; the caller has reserved room for it.
  template <class Record>
  void insert(Record* records, Index index) noexcept {
    Index& head = heads_[place_of(records[index].range.begin)];
    records[index].next = head;
    head = index;
  }
  /// The record at this offset, or 0.
  template <class Record>
  Index find(const Record* records, Offset offset) const noexcept {
    if (heads_.empty()) return 0;
    Index index = heads_[place_of(offset)];
    while (index != 0 && records[index].range.begin != offset) index = records[index].next;
    return index;
  }
  /// Takes the offset out; the record that was there, or 0.
  template <class Record>
  Index take(Record* records, Offset offset) noexcept {
    if (heads_.empty()) [[unlikely]]
      return 0;
    Index* to_it = &heads_[place_of(offset)];
    Index index = *to_it;
    while (index != 0 && records[index].range.begin != offset) {
      to_it = &records[index].next;
      index = *to_it;
    }
    if (index == 0) return 0;
    *to_it = records[index].next;
    return index;
  }

 private:
  size_t place_of(Offset offset) const noexcept {  // Fibonacci hashing: offsets are multiples of something
    return static_cast<size_t>((offset * 0x9e3779b97f4a7c15ull) >> shift_);
  }

  MetadataArray<Index> heads_;  // a power of two of them
  unsigned shift_ = 63;
};

}  // namespace memoir
