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
  /// Bytes committed now.
  virtual Size committed() const noexcept = 0;
};

}  // namespace memoir
