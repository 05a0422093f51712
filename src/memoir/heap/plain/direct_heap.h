// SPDX-License-Identifier: Apache-2.0
//
// No pool at all: every object is a segment of its own, given back with its free. What a program does that
// calls cudaMalloc and cudaFree itself; the baseline below every pool, and the way to debug one (an access
// outside of an object is then outside of everything).
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/heap/heap.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/segments.h"

namespace memoir {

class DirectHeap final : public Heap {
 public:
  /// The alignment of every object in bytes (what CUDA promises); stricter requests get kNoOffset.
  static constexpr Size kAlignment = 256;

  /// Takes from `segments`, which the caller keeps alive and leaves to this heap, and whose segments begin at
  /// multiples of kAlignment.
  explicit DirectHeap(Segments& segments) noexcept : segments_(&segments) {}
  ~DirectHeap() override;  // gives everything back

  bool ok() const noexcept { return true; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  Size live() const noexcept override { return live_; }

 private:
  Segments* segments_;
  MetadataArray<Range> objects_;
  MetadataArray<std::uint32_t> unused_;  // positions in objects_
  OffsetTable by_offset_;                // position + 1
  Size live_ = 0;
};

}  // namespace memoir
