// SPDX-License-Identifier: Apache-2.0
//
// Segments cut out of one arena, so that a pool written for cudaMalloc also runs in simulation, on host
// memory and on mapped device memory. Each lies at the lowest addresses of the smallest gap that holds it,
// begins at a granule, and is committed as long as it is held: an arena's limit is the cap.
#pragma once

#include "memoir/heap/plain/span_heap.h"
#include "memoir/heap/segments.h"

namespace memoir {

class ArenaSegments final : public Segments {
 public:
  /// Works in the whole of `arena`, which the caller keeps alive and leaves to these segments.
  explicit ArenaSegments(Arena& arena) noexcept : arena_(&arena), spans_(arena) {}

  /// False when there was no metadata memory; then every take() gives kNoOffset.
  bool ok() const noexcept { return spans_.ok(); }

  Offset take(Size size) noexcept override;
  void give_back(Range segment) noexcept override;
  Size held() const noexcept override { return spans_.live(); }

 private:
  Arena* arena_;
  SpanHeap spans_;  // of the addresses: its objects are the segments, rounded up to granules
};

}  // namespace memoir
