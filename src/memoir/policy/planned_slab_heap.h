// SPDX-License-Identifier: Apache-2.0
//
// The offline row of a simulation: the whole program is planned beforehand, one segment of the plan's size is
// taken, and every object lies where its plan says. Nothing that runs online can know as much; it shows what
// was possible.
#pragma once

#include <optional>

#include "memoir/heap/planned/planned_heap.h"
#include "memoir/heap/segments.h"

namespace memoir {

class PlannedSlabHeap final : public Heap {
 public:
  /// Takes the segment for `plan`; where only `left` bytes are left it takes those, and refuses what its plan
  /// puts above.
  PlannedSlabHeap(const RecordedPlan& plan, Segments& segments, Size left) noexcept;

  bool ok() const noexcept { return heap_.has_value() && heap_->ok(); }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override { return heap_->free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_->size_of(offset); }
  Size live() const noexcept override { return heap_->live(); }

 private:
  PlannedLayout layout_;
  std::optional<PlannedHeap> heap_;
  Size size_ = 0;  // bytes of the segment
};

}  // namespace memoir
