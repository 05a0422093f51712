// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/loop_plan.h"

#include <algorithm>
#include <exception>
#include <map>
#include <vector>

#include "memoir/policy/few_waits.h"

namespace memoir {

/// What passes from one round to the next has a place for the whole round, if there is a moment at which so
/// little lives that the slab can be made; else it is left to the online pool.
void LoopPlanJob::plan() noexcept try {
  const std::uint32_t cut = round_.cut();
  made_plan_ = plan_round(cut, true, kSteps);
  if (made_plan_ == nullptr) made_plan_ = plan_round(cut, false, kSteps);
} catch (const std::exception&) {  // no memory for it
}

std::unique_ptr<LoopPlan> LoopPlanJob::plan_round(std::uint32_t cut, bool with_passing,
                                                  std::uint64_t steps) const {
  const std::uint32_t count = period();
  RecordedPlan recorded;
  Problem problem;
  std::vector<StreamId> streams;
  std::map<StreamId, Size> bytes;
  std::vector<std::uint32_t> members;  // of the plan
  Size passing = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const LoopRound::Object& object = round_.objects[(cut + i) % count];
    const std::uint32_t begin = (object.begin + round_.ticks - round_.objects[cut].begin) % round_.ticks;
    const std::uint64_t end = std::uint64_t{begin} + object.ticks;
    const bool passes = end > round_.ticks;
    const Lifetime lifetime = passes ? Lifetime{0, round_.ticks} : Lifetime{begin, end};
    recorded.sequence.push_back({SiteId{object.stream} + 1, object.size, alignment_, lifetime, kNoOffset});
    if (passes) passing += object.size;
    if (object.ticks == 0 || (passes && !with_passing)) continue;
    problem.push_back({lifetime, object.size, alignment_});
    streams.push_back(object.stream);
    bytes[object.stream] += object.size;
    members.push_back(i);
  }
  if (problem.empty() || (passing == 0 && !with_passing)) return nullptr;
  const Plan plan = plan_with_few_waits(problem, streams, alignment_, steps);
  // What lives at the cut passes it, or lives for longer than rounds.
  const Size live = round_.objects[cut].live;
  const Size outside = (live > passing ? live - passing : 0) + round_.longer + (with_passing ? 0 : passing);
  if (plan.arena_size > bound_ || bound_ - plan.arena_size < std::max(outside, round_.least_live))
    return nullptr;
  for (size_t i = 0; i < members.size(); ++i) recorded.sequence[members[i]].offset = plan.offsets[i];
  recorded.arena_size = plan.arena_size;

  auto made = std::make_unique<LoopPlan>();
  made->first = round_.first + cut;
  made->period = count;
  made->at_cut = !with_passing;
  made->room = bound_ - plan.arena_size;
  made->owner = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) {
                  return a.second < b.second;
                })->first;
  made->layout = std::make_unique<PlannedLayout>(recorded);
  if (!made->layout->ok()) return nullptr;
  made->heap = std::make_unique<PlannedHeap>(*made->layout);
  if (!made->heap->ok()) return nullptr;
  made->streams = std::make_unique<SlabStreams>(*made->layout, order_, made->owner);
  return made;
}

}  // namespace memoir
