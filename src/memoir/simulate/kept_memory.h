// SPDX-License-Identifier: Apache-2.0
//
// The simulated memory of a private pool whose graph may run again at any time: what it was once given stays its own, as
// on a device (DeviceHeap::keep). A trace does not tell when graphs die, so that here they never do.
#pragma once

#include "memoir/arena/arena.h"
#include "memoir/heap/segments.h"

namespace memoir {

/// Ranges that are committed again cost nothing.
class KeptArena final : public Arena {
 public:
  /// Over `arena`, kept alive by the caller.
  explicit KeptArena(Arena& arena) noexcept : arena_(&arena) {}

  Size capacity() const noexcept override { return arena_->capacity(); }
  Size granule() const noexcept override { return arena_->granule(); }
  bool commit(Range range) noexcept override { return arena_->commit(range); }
  void decommit(Range) noexcept override {}
  Size committed() const noexcept override { return arena_->committed(); }

 private:
  Arena* arena_;
};

/// Segments that are given back serve nobody.
class KeptSegments final : public Segments {
 public:
  /// Over `segments`, kept alive by the caller.
  explicit KeptSegments(Segments& segments) noexcept : segments_(&segments) {}

  Offset take(Size size) noexcept override { return segments_->take(size); }
  void give_back(Range) noexcept override {}
  Size held() const noexcept override { return segments_->held(); }

 private:
  Segments* segments_;
};

}  // namespace memoir
