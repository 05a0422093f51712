// SPDX-License-Identifier: Apache-2.0
//
// A range of a device pool's addresses that is set aside for somebody who knows where things will go
// (guided_pool_heap.h): the pool leaves its addresses alone, and treats the memory there as it is told.
//
//   addresses   | common ...        | set aside      | common, a hole ... |
#pragma once

#include "memoir/heap/pool/pool_row.h"

namespace memoir {

class AsideRange {
 public:
  /// What becomes of memory there.
  enum class Treatment : std::uint8_t {
    kYield,  // it serves every request, as if nothing were set aside
    kShare,  // it stays as long as the pool holds little more than it ever needed; its free blocks serve too
    kFill,   // it stays, and what is idle elsewhere is moved there
    kKeep    // it stays, and others grow as far as the device has memory
  };

  /// Ends the range that was set aside before, and sets `size` bytes aside in the row's largest hole; 0 bytes
  /// are none. False when no hole is as large, or there is no metadata memory.
  bool set(PoolRow& row, Size size) noexcept;

  /// Of size 0 when nothing is set aside.
  Range range() const noexcept { return range_; }
  bool is_set() const noexcept { return range_.size != 0; }
  void treat(Treatment how) noexcept { how_ = how; }
  Treatment treatment() const noexcept { return how_; }
  /// Something is set aside, and serves every request.
  bool yields() const noexcept { return is_set() && how_ == Treatment::kYield; }
  /// Something is set aside, and its free blocks serve every request.
  bool shares() const noexcept { return is_set() && how_ <= Treatment::kShare; }
  /// Idle memory is moved to a request there rather than grown.
  bool fills(Range request) const noexcept {
    return is_set() && !yields() && request.overlaps(range_) && how_ != Treatment::kKeep;
  }

  /// Whether `range` lies in what is set aside.
  bool holds(Range range) const noexcept {
    return range.begin >= range_.begin && range.begin < range_.end() &&
           range.size <= range_.end() - range.begin;
  }
  /// The block that a range there begins in, when nothing lives in it; else 0.
  PoolRow::Index free_at(const PoolRow& row, Range range) const noexcept;

  /// Live blocks there hold so many bytes more, or fewer.
  void took(Size size) noexcept { held_ += size; }
  void gave(Size size) noexcept { held_ -= size; }
  /// What the pool needs for the range, all that lives elsewhere and the request; `held` bytes are held by
  /// now.
  Size needed_with(Size held, Range request) const noexcept;

 private:
  Range range_;
  Treatment how_ = Treatment::kYield;
  Size held_ = 0;  // bytes that live blocks hold there
};

}  // namespace memoir
