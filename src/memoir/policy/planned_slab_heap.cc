// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/planned_slab_heap.h"

#include <algorithm>

namespace memoir {

PlannedSlabHeap::PlannedSlabHeap(const RecordedPlan& plan, Segments& segments, Size left) noexcept
    : layout_(plan) {
  if (!layout_.ok()) return;
  heap_.emplace(layout_);
  const bool fits = Segments::cost(plan.arena_size) <= left;
  const Size wanted =
      fits ? plan.arena_size : align_down(left, left < kMiB ? Segments::kStep : Segments::kPage);
  if (wanted != 0 && segments.take(wanted) != kNoOffset) size_ = wanted;
}

Offset PlannedSlabHeap::allocate(const Request& request) noexcept {
  if (heap_->at_end()) heap_->begin_pass();  // the program is replayed once more
  const Offset offset = heap_->allocate(request);
  if (offset == kNoOffset || request.size <= size_ - std::min(offset, size_)) return offset;
  heap_->free(offset);
  return kNoOffset;
}

}  // namespace memoir
