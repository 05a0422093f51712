// SPDX-License-Identifier: Apache-2.0
//
// Where a heap that grows piece by piece gets its pieces. A segment is what one call to the device gave
// (cudaMalloc); pools carve objects out of segments and give back whole ones.
//
//   offsets   0 ....|  segment  |.....|     segment     |...    gaps belong to others, or to nobody
//
// Segments that touch are still two: an object never lies across their border. Not thread-safe.
#pragma once

#include "memoir/base/units.h"

namespace memoir {

class Segments {
 public:
  virtual ~Segments() = default;

  /// A new segment of exactly `size` bytes (> 0), usable, at an offset that no held segment overlaps;
  /// kNoOffset when the device has no memory, or the cap is reached: nothing changed.
  virtual Offset take(Size size) noexcept = 0;
  /// Gives back one whole segment: a range that take() gave.
  virtual void give_back(Range segment) noexcept = 0;
  /// Bytes that held segments cost, each rounded up to what the device hands out (PyTorch's "reserved").
  virtual Size held() const noexcept = 0;

  static constexpr Size kStep = 512;       // bytes
  static constexpr Size kPage = 2 * kMiB;  // bytes
  /// What a CUDA device charges for one: below 1 MiB the driver packs them in steps of 512 bytes, from there
  /// on it gives whole pages of 2 MiB.
  static constexpr Size cost(Size size) noexcept { return align_up(size, size < kMiB ? kStep : kPage); }
};

}  // namespace memoir
