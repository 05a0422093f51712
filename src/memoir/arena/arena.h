// SPDX-License-Identifier: Apache-2.0
//
// An arena is the one contiguous range of addresses that a heap places things in: WHERE memory comes from. A
// heap knows it only by offsets, so the same heap runs over host memory, a device, or nothing at all
// (simulation).
//
//    reserved  [0, capacity())                       addresses only, no memory
//    committed a union of granules within it         has (or will have, on first touch) memory behind it
//
// Not thread-safe: whoever owns the heap owns the arena.
#pragma once

#include "memoir/base/units.h"

namespace memoir {

class Arena {
 public:
  virtual ~Arena() = default;

  /// Bytes reserved. Constant.
  virtual Size capacity() const noexcept = 0;
  /// The unit of commit and decommit in bytes, a power of two. Constant.
  virtual Size granule() const noexcept = 0;
  /// Makes the range usable, rounded outwards to granules. Idempotent. False when there is no memory: nothing
  /// changed.
  virtual bool commit(Range range) noexcept = 0;
  /// Gives the memory of every granule wholly inside the range back; its contents are lost. Idempotent.
  virtual void decommit(Range range) noexcept = 0;
  /// As decommit(), of memory that is wanted elsewhere: the arena may keep it for the commits to come, so
  /// that nobody else gets it in between. settle() gives back what none of them took.
  virtual void take_away(Range range) noexcept { decommit(range); }
  virtual void settle() noexcept {}
  /// Bytes that could be committed beyond those that are, as far as is known now; 0: nobody knows.
  virtual Size room() noexcept { return 0; }
  /// Bytes committed now.
  virtual Size committed() const noexcept = 0;
};

}  // namespace memoir
