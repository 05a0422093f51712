// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/planned_slab.h"

#include <algorithm>

#include "memoir/simulate/guided_run.h"
#include "memoir/simulate/sim_segments.h"

namespace memoir {

PlannedSlab::PlannedSlab(const Workload& workload, Segments& segments, Size cap) {
  const RecordedPlan recorded = plan_workload(workload, 1);
  layout_.emplace(recorded);
  if (!layout_->ok()) return;
  heap_.emplace(*layout_);
  const bool fits = SimSegments::cost(recorded.arena_size) <= cap;
  const Size wanted =
      fits ? recorded.arena_size : align_down(cap, cap < kMiB ? SimSegments::kStep : SimSegments::kPage);
  if (wanted != 0 && segments.take(wanted) != kNoOffset) size_ = wanted;
}

Offset PlannedSlab::allocate(const Request& request) noexcept {
  if (heap_->at_end()) heap_->begin_pass();  // the workload is replayed once more
  const Offset offset = heap_->allocate(request);
  if (offset == kNoOffset || request.size <= size_ - std::min(offset, size_)) return offset;
  heap_->free(offset);
  return kNoOffset;
}

}  // namespace memoir
