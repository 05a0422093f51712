// SPDX-License-Identifier: Apache-2.0
//
// Faults for the walks to find: a walk that does not find them proves nothing.
#pragma once

#include "memoir/arena/sim_arena.h"
#include "memoir/heap/plain/span_heap.h"

namespace memoir::contract {

enum class Fault {
  kOverlap,
  kMisaligned,
  kDoubleFree,
  kRefuses,
  kUncommitted,
  kForgets,
  kTrimsLive,
  kCounts,
  kLeaks
};

/// A good heap that does one thing wrong, now and then.
class FaultyHeap final : public Heap {
 public:
  FaultyHeap(Arena& arena, Fault fault)
      : fault_(fault),
        arena_(&arena),
        elsewhere_(arena.capacity()),
        inner_(fault == Fault::kUncommitted ? elsewhere_ : arena) {}
  Offset allocate(const Request& request) noexcept override {
    if (!now_and_then()) return last_ = inner_.allocate(request);
    if (fault_ == Fault::kRefuses) return kNoOffset;
    const Offset previous = last_;
    last_ = inner_.allocate(request);
    if (last_ == kNoOffset) return last_;
    if (fault_ == Fault::kMisaligned) return last_ + 1;
    if (fault_ == Fault::kOverlap && inner_.size_of(previous) != 0 && previous % request.alignment == 0)
      return previous;
    return last_;
  }
  bool free(Offset offset) noexcept override {
    if (fault_ == Fault::kLeaks && now_and_then()) return inner_.size_of(offset) != 0;
    return inner_.free(offset) || fault_ == Fault::kDoubleFree;
  }
  Size size_of(Offset offset) const noexcept override {
    return fault_ == Fault::kForgets && offset % 3 == 1 ? 0 : inner_.size_of(offset);
  }
  void trim() noexcept override {
    inner_.trim();
    if (fault_ == Fault::kTrimsLive) arena_->decommit({0, arena_->capacity()});
  }
  Size live() const noexcept override { return inner_.live() + (fault_ == Fault::kCounts && steps_ > 40); }

 private:
  bool now_and_then() noexcept { return ++steps_ % 23 == 0; }

  Fault fault_;
  int steps_ = 0;
  Offset last_ = kNoOffset;
  Arena* arena_;
  SimArena elsewhere_;
  SpanHeap inner_;
};

}  // namespace memoir::contract
