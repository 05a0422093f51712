// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's CUDA caching allocator as it is by default: every segment is one cudaMalloc. It places objects
// where PyTorch does, given the same segments: tests/heap/test_recorded_gpu.cc holds it to recorded
// histories.
#pragma once

#include "memoir/heap/peers/pytorch/pytorch_pools.h"
#include "memoir/heap/segments.h"

namespace memoir {

class PyTorchHeap final : public PyTorchPools {
 public:
  /// Takes segments from `segments`, which the caller keeps alive, as are `collector` and `phases` if any.
  explicit PyTorchHeap(Segments& segments, const PyTorchOptions& options = {}, Collector* collector = nullptr,
                       PhaseTable* phases = nullptr) noexcept
      : PyTorchPools(options, false, collector, phases), segments_(&segments) {}

  /// Continues from a recorded state: takes over a segment of the pool that `segments` holds already, with
  /// its live objects in the order of their addresses. False when they cannot be (see RestoredObject), there
  /// is no such pool, or no metadata memory: nothing changed.
  bool restore(Range segment, StreamId stream, std::span<const RestoredObject> objects,
               PoolId pool = 0) noexcept;

 private:
  BlockIndex grow(const Want& want) noexcept override;
  void release_set(std::uint32_t set) noexcept override;
  void release_segment(BlockIndex block) noexcept override;

  Segments* segments_;
};

}  // namespace memoir
