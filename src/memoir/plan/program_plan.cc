// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/program_plan.h"

#include <algorithm>
#include <set>

#include "memoir/base/error.h"
#include "memoir/plan/plan.h"

namespace memoir {

namespace {

std::string heap_name(std::uint16_t device, std::uint32_t pool) {
  return "pool " + std::to_string(pool) + " on device " + std::to_string(device);
}

}  // namespace

ProgramPlan program_of(const RecordedPlan& plan) {
  PlannedMemory memory;
  memory.size = plan.arena_size;
  memory.load = plan.load;
  ProgramPlan program{plan.sequence, {memory}, plan.planner, plan.meta, {}};
  for (PlannedAllocation& allocation : program.sequence) allocation.memory = 0;
  return program;
}

RecordedPlan recorded_for(const ProgramPlan& plan, std::uint16_t device, std::uint32_t pool) {
  RecordedPlan recorded{{}, 0, 0, plan.planner, plan.meta};
  std::optional<std::uint16_t> memory;
  for (const PlannedAllocation& allocation : plan.sequence) {
    if (allocation.device != device || allocation.pool != pool) continue;
    recorded.sequence.push_back(allocation);
    if (!allocation.planned()) continue;
    if (memory && *memory != allocation.memory) {
      throw Error(heap_name(device, pool) + " is planned in the memories " + plan.memories[*memory].name +
                  " and " + plan.memories[allocation.memory].name + "; a heap follows a plan in one");
    }
    memory = allocation.memory;
  }
  if (!memory) return recorded;
  for (const PlannedAllocation& other : plan.sequence) {
    if (!other.planned() || other.memory != *memory || (other.device == device && other.pool == pool))
      continue;
    throw Error(heap_name(device, pool) + " shares the memory " + plan.memories[*memory].name + " with " +
                heap_name(other.device, other.pool) + "; a heap follows a plan in a memory of its own");
  }
  const PlannedMemory& arena = plan.memories[*memory];
  recorded.arena_size = arena.size;
  recorded.load = arena.load;
  for (PlannedAllocation& allocation : recorded.sequence) {
    if (is_power_of_two(arena.alignment) && is_power_of_two(allocation.alignment))
      allocation.alignment = std::max(allocation.alignment, arena.alignment);
  }
  return recorded;
}

std::vector<std::pair<std::uint16_t, std::uint32_t>> heaps_of(const ProgramPlan& plan) {
  std::set<std::pair<std::uint16_t, std::uint32_t>> heaps;
  for (const PlannedAllocation& allocation : plan.sequence) heaps.emplace(allocation.device, allocation.pool);
  return {heaps.begin(), heaps.end()};
}

std::vector<Size> loads_of(std::span<const PlannedAllocation> sequence, std::size_t memories) {
  std::vector<Problem> problems(memories);
  for (const PlannedAllocation& allocation : sequence) {
    if (!allocation.planned()) continue;
    problems[allocation.memory].push_back({allocation.lifetime, allocation.size, allocation.alignment});
  }
  std::vector<Size> loads;
  for (const Problem& problem : problems) loads.push_back(load(problem));
  return loads;
}

}  // namespace memoir
