// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's caching allocator with expandable_segments:True: per stream and pool one area of addresses, 9/8
// of the device's memory long, that memory is mapped into as it is needed, in units of 2 MiB (small) or
// large_segment_size; tests/heap/test_recorded_gpu.cc holds it to recorded histories.
//
//   arena  |  area: small, stream 0  |  area: large, stream 0  |  area: large, stream 1  | ...
//             | live | free | live | free ..... no memory ............. |
//                                       ^ grows here, and where the lowest addresses without memory are
//
// A free block at the end of the mapped part counts, for best fit, as what it could grow to. Trimming takes
// the memory of units that are free as a whole; an area without memory is given up. On a device, the arena
// has to wait for the stream before it unmaps.
#pragma once

#include "memoir/arena/arena.h"
#include "memoir/heap/peers/pytorch/pytorch_pools.h"

namespace memoir {

class ExpandableHeap final : public PyTorchPools {
 public:
  /// Works in the whole of `arena`, which the caller keeps alive and leaves to this heap: its addresses are
  /// cut into as many areas as there is room for (of options.device_memory, or sixteen of them when that is
  /// 0), and its limit is the cap. A granule divides 2 MiB and large_segment_size, or those are rounded up to
  /// it.
  explicit ExpandableHeap(Arena& arena, const PyTorchOptions& options = {}, Collector* collector = nullptr,
                          PhaseTable* phases = nullptr) noexcept;

  /// Continues from a recorded state: opens an area of the pool, commits `memory` in it and fills it with
  /// the live objects. Both are in the order of their offsets, which count from the area's begin; the ranges
  /// are whole granules of the arena, none touching another. The offset of the area; kNoOffset when they
  /// cannot be (see RestoredObject), when there is no such pool, the arena has no room or memory, or there is
  /// no metadata memory: nothing changed.
  Offset restore(bool small, StreamId stream, std::span<const Range> memory,
                 std::span<const RestoredObject> objects, PoolId pool = 0) noexcept;

  /// Bytes from one area to the next: an offset's area begins at the multiple of it below.
  Size stride() const noexcept { return stride_; }

 private:
  BlockIndex grow(const Want& want) noexcept override;
  void release_set(std::uint32_t set) noexcept override;
  void release_segment(BlockIndex) noexcept override {}  // there are none

  int kind_of(std::uint32_t set) const noexcept { return is_small(sets_[set]) ? 0 : 1; }
  BlockIndex find_room(const Want& want) noexcept;
  BlockIndex open_area(std::uint32_t set) noexcept;
  bool map(BlockIndex block, Size size) noexcept;
  void unmap(BlockIndex block) noexcept;
  void insert_unmapped(BlockIndex block) noexcept;
  void erase_unmapped(BlockIndex block) noexcept;

  Arena* arena_;
  Size units_[2];                      // bytes: small, large
  Size area_sizes_[2] = {};            // bytes, multiples of the units
  Size stride_ = 0;                    // bytes between areas
  MetadataArray<std::uint8_t> areas_;  // 1: in use
};

}  // namespace memoir
