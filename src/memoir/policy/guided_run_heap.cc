// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/guided_run_heap.h"

#include <algorithm>

namespace memoir {

namespace {

LearningOptions without_learning(const DevicePoolOptions& options) noexcept {
  LearningOptions own{options};
  own.learn = false;
  return own;
}

}  // namespace

GuidedRunHeap::GuidedRunHeap(const RecordedPlan& plan, Arena& arena, const DevicePoolOptions& options,
                             StreamOrder* order, Segments* plain, bool learns, PlanRunner* runner) noexcept
    : online_(arena, without_learning(options), order, plain, runner),
      layout_(plan),
      guided_(online_.pool(), online_),
      learns_(learns),
      has_sites_(std::any_of(plan.sequence.begin(), plan.sequence.end(),
                             [](const PlannedAllocation& it) { return it.site != kNoSite; })) {
  if (!online_.ok() || !layout_.ok()) return;
  follows_ = !plan.sequence.empty() && guided_.follow(&layout_);
  ok_ = follows_ || plan.sequence.empty();
  if (ok_ && !follows_ && learns_) online_.start_learning();
}

Offset GuidedRunHeap::allocate(const Request& request) noexcept {
  if (!follows_) return online_.allocate(request);
  if (guided_.at_end()) {
    past_ = counters();
    guided_.begin_pass();  // the program goes through the plan once more
  }
  Request asked = request;
  if (!has_sites_) asked.site = kNoSite;
  const Offset offset = guided_.allocate(asked);
  if (guided_.is_lost()) [[unlikely]]
    give_up();
  return offset;
}

void GuidedRunHeap::give_up() noexcept {
  past_ = counters();
  ++past_.dropped;
  follows_ = false;
  guided_.follow(nullptr);
  if (learns_) online_.start_learning();
}

LearningHeap::Counters GuidedRunHeap::counters() const noexcept {
  LearningHeap::Counters sum = past_;
  if (follows_) {
    const GuidedPoolHeap::Counters& now = guided_.counters();
    sum.plans = 1;
    sum.planned += now.planned;
    sum.departed += now.unmatched + now.occupied;
  } else {
    const LearningHeap::Counters& learned = online_.counters();
    sum.plans += learned.plans;
    sum.planned += learned.planned;
    sum.departed += learned.departed;
    sum.dropped += learned.dropped;
  }
  return sum;
}

}  // namespace memoir
