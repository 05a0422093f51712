// SPDX-License-Identifier: Apache-2.0
//
// Static tensors whose pool nobody has sized: it begins with nothing, and has memory up to the highest byte
// that was ever used. What it reserves at its end is the pool that the program needs.
#pragma once

#include <algorithm>

#include "memoir/heap/plain/static_tensors_heap.h"

namespace memoir {

class HighWaterHeap final : public Heap {
 public:
  /// In the whole of `arena`, kept alive by the caller and left to this heap.
  HighWaterHeap(Arena& arena, const StaticTensorsOptions& options) noexcept
      : arena_(&arena), addresses_(arena), heap_(addresses_, options) {}

  bool ok() const noexcept { return heap_.ok(); }
  Offset allocate(const Request& request) noexcept override {
    const Offset offset = heap_.allocate(request);
    if (offset == kNoOffset) return kNoOffset;
    const Offset end = offset + heap_.size_of(offset);
    if (end > high_ && !arena_->commit({high_, end - high_})) {
      heap_.free(offset);
      return kNoOffset;
    }
    high_ = std::max(high_, end);
    return offset;
  }
  bool free(Offset offset) noexcept override { return heap_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  Size live() const noexcept override { return heap_.live(); }
  StaticTensorsHeap::Refusal refusal() const noexcept { return heap_.refusal(); }

 private:
  /// The arena's addresses; memory comes later.
  class Addresses final : public Arena {
   public:
    explicit Addresses(const Arena& arena) noexcept : arena_(&arena) {}
    Size capacity() const noexcept override { return arena_->capacity(); }
    Size granule() const noexcept override { return arena_->granule(); }
    bool commit(Range) noexcept override { return true; }
    void decommit(Range) noexcept override {}
    Size committed() const noexcept override { return 0; }

   private:
    const Arena* arena_;
  };

  Arena* arena_;
  Addresses addresses_;
  StaticTensorsHeap heap_;
  Offset high_ = 0;
};

}  // namespace memoir
