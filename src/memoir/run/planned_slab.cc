// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/planned_slab.h"

#include <algorithm>

#include "memoir/plan/planners.h"
#include "memoir/plan/recorded_plan.h"
#include "memoir/run/sim_segments.h"

namespace memoir {

namespace {
// Beyond, only the one planner is quick enough, and seldom far from the best.
constexpr size_t kQuickly = 20'000;  // objects
}  // namespace

PlannedSlab::PlannedSlab(const Workload& workload, Segments& segments, Size cap) {
  const Problem problem = workload.problem();
  const Plan plan =
      problem.size() <= kQuickly ? plan_quickly(problem) : find_planner("best_fit").run(problem);
  RecordedPlan recorded;
  recorded.arena_size = plan.arena_size;
  recorded.sequence.reserve(problem.size());
  for (size_t i = 0; i < problem.size(); ++i) {
    recorded.sequence.push_back({workload.objects()[i].site, problem[i].size, problem[i].alignment,
                                 problem[i].lifetime, plan.offsets[i]});
  }
  layout_.emplace(recorded);
  if (!layout_->ok()) return;
  heap_.emplace(*layout_);
  const bool fits = SimSegments::cost(plan.arena_size) <= cap;
  const Size wanted =
      fits ? plan.arena_size : align_down(cap, cap < kMiB ? SimSegments::kStep : SimSegments::kPage);
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
