// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/plan_run.h"

#include <algorithm>
#include <string>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/policy/few_waits.h"
#include "memoir/policy/guided_run_heap.h"
#include "memoir/simulate/memory/mapped_memory.h"
#include "memoir/simulate/memory/sim_segments.h"

namespace memoir {

namespace {

constexpr Size kNoLimit = ~Size{0};

RecordedPlan plan_for(const Workload& workload, std::span<const StreamId> streams, Size alignment) {
  Problem problem = workload.problem();
  const Plan plan = plan_with_few_waits(problem, streams, alignment);
  RecordedPlan recorded;
  recorded.arena_size = plan.arena_size;
  recorded.load = workload.peak_live();
  recorded.sequence.reserve(problem.size());
  for (std::size_t i = 0; i < problem.size(); ++i) {
    recorded.sequence.push_back({workload.objects()[i].site, problem[i].size, problem[i].alignment,
                                 problem[i].lifetime, plan.offsets[i]});
  }
  return recorded;
}

std::vector<StreamId> streams_of(const Workload& workload) {
  std::vector<StreamId> streams;
  for (const Workload::Object& object : workload.objects()) streams.push_back(object.stream);
  return streams;
}

/// The most bytes that the guided pool takes for the workload with this plan; with an empty one it is the
/// pool online.
Size reserved_with(const RecordedPlan& plan, const Workload& workload, Size alignment) {
  SimMemory memory;
  StreamClock clock;
  MappedMemory arena(16 * std::max(workload.peak_live(), 4 * kMiB), {}, memory, &clock);
  SimSegments segments(memory, {.shift = arena.capacity(), .clock = &clock});
  DevicePoolOptions options;
  options.alignment = alignment;
  GuidedRunHeap heap(plan, arena, options, &clock, &segments);
  if (!arena.ok() || !segments.ok() || !heap.ok()) return kNoLimit;
  std::vector<Offset> offsets(workload.objects().size(), kNoOffset);
  Size most = 0;
  for (const Workload::Step& step : workload.steps()) {
    const StreamClock::Section section(clock);
    const Workload::Object& object = workload.objects()[step.object];
    Offset& offset = offsets[step.object];
    if (step.kind == Workload::Kind::kFree) {
      if (offset != kNoOffset) heap.free(offset);
      continue;
    }
    offset = heap.allocate(
        {.size = object.size, .alignment = object.alignment(), .site = object.site, .stream = object.stream});
    if (offset == kNoOffset) return kNoLimit;
    most = std::max(most, memory.taken);
  }
  return most;
}

}  // namespace

RecordedPlan plan_workload(const Workload& workload, Size alignment) {
  return plan_for(workload, streams_of(workload), alignment);
}

RecordedPlan guiding_plan(const Workload& workload, Size alignment) {
  RecordedPlan plan = plan_workload(workload, alignment);
  const Size online = reserved_with({}, workload, alignment);
  if (reserved_with(plan, workload, alignment) <= online) return plan;
  if (workload.streams() > 1) {  // more waits between streams, and less memory
    plan = plan_for(workload, std::vector<StreamId>(workload.objects().size(), 0), alignment);
    if (reserved_with(plan, workload, alignment) <= online) return plan;
  }
  return {};
}

ProgramPlan plan_run(std::span<const Event> events, std::uint16_t device, Size alignment) {
  if (!is_power_of_two(alignment) || alignment > kGiB)
    throw Error("the alignment of " + std::to_string(alignment) + " bytes is not a power of two up to 2^30");
  const Workload workload(events, device);
  ProgramPlan plan;
  plan.planner = "pool";
  std::vector<RecordedPlan> parts;
  for (const Workload& part : workload.by_pool()) {
    const std::string pool = parts.empty() ? "" : ", pool " + std::to_string(parts.size());
    parts.push_back(guiding_plan(part, alignment));
    plan.memories.push_back({"device " + std::to_string(device) + pool, PlannedMemory::kNoLimit, alignment,
                             parts.back().arena_size, parts.back().load});
  }
  std::vector<size_t> next(parts.size());  // of each part
  for (const Workload::Step& step : workload.steps()) {
    if (step.kind != Workload::Kind::kAllocate) continue;
    const Workload::Object& object = workload.objects()[step.object];
    if (parts[object.pool].sequence.empty()) continue;  // better online
    const PlannedAllocation& planned = parts[object.pool].sequence[next[object.pool]++];
    plan.sequence.push_back({.site = object.site,
                             .size = object.size,
                             .alignment = object.alignment(),
                             .lifetime = {object.begin, std::max(object.end, object.begin + 1)},
                             .offset = planned.offset,
                             .stream = events[step.event].stream,
                             .device = device,
                             .memory = static_cast<std::uint16_t>(object.pool),
                             .pool = object.pool});
  }
  return plan;
}

ProgramPlan plan_run(const Trace& trace, std::uint16_t device, Size alignment) {
  ProgramPlan plan = plan_run(trace.events(), device, alignment);
  for (const std::string_view key : trace.meta_keys())
    plan.meta.emplace_back(std::string(key), std::string(trace.meta(key)));
  return plan;
}

}  // namespace memoir
