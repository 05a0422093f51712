// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/plan_proof.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "memoir/base/error.h"
#include "memoir/plan/files/plan_file.h"
#include "memoir/plan/plan.h"

namespace memoir {

namespace {

using plan_format::kMaxSize;

/// At most as long as its field, of the letters from `lowest` to '~'.
bool is_name(std::string_view text, char lowest) {
  return text.size() <= 32 &&
         std::all_of(text.begin(), text.end(), [&](char c) { return c >= lowest && c <= '~'; });
}

std::string bytes(Size size) { return std::to_string(size) + " bytes"; }

}  // namespace

void PlanProof::refuse(const std::string& what) const { throw Error(name_ + ": " + what); }

void PlanProof::refuse(std::size_t record, const std::string& what) const {
  refuse("record " + std::to_string(record) + ": " + what);
}

void PlanProof::prove(const ProgramPlan& plan) const {
  if (!is_name(plan.planner, '!')) refuse("the planner's name is not one of at most 32 printable letters");
  prove_memories(plan);
  prove_records(plan);
  prove_layout(plan);
  if (plan.skeleton) prove_skeleton(plan);
}

void PlanProof::prove_memories(const ProgramPlan& plan) const {
  if (plan.memories.size() > size_t{1} << 16)
    refuse("there are " + std::to_string(plan.memories.size()) + " memories; the most is 65,536");
  std::set<std::string_view> names;
  for (size_t i = 0; i < plan.memories.size(); ++i) {
    const PlannedMemory& memory = plan.memories[i];
    const auto refuse_memory = [&](const std::string& what) {
      refuse("memory " + std::to_string(i) + ": " + what);
    };
    if (!is_name(memory.name, ' ')) refuse_memory("its name is not one of at most 32 printable letters");
    if (!names.insert(memory.name).second) refuse_memory("has the name of another memory");
    if (memory.alignment == 0 || memory.alignment > kMaxSize)
      refuse_memory("the alignment of " + bytes(memory.alignment) + " cannot be");
    if (memory.size > kMaxSize) refuse_memory("its size of " + bytes(memory.size) + " is too large");
    if (memory.size > memory.capacity) {
      refuse_memory("the plan takes " + bytes(memory.size) + " of it, and its capacity is " +
                    bytes(memory.capacity));
    }
  }
}

void PlanProof::prove_records(const ProgramPlan& plan) const {
  Size total = 0;
  for (size_t i = 0; i < plan.sequence.size(); ++i) {
    const PlannedAllocation& allocation = plan.sequence[i];
    const auto& [begin, end] = allocation.lifetime;
    if (allocation.size > kMaxSize) refuse(i, "the size of " + bytes(allocation.size) + " is too large");
    if (allocation.alignment == 0 || allocation.alignment > kMaxSize)
      refuse(i, "the alignment of " + bytes(allocation.alignment) + " cannot be");
    if (begin >= end || end > plan_format::kMaxTick) {
      refuse(i, "the lifetime [" + std::to_string(begin) + ", " + std::to_string(end) + ") cannot be");
    }
    if (i != 0 && begin < plan.sequence[i - 1].lifetime.begin)
      refuse(i, "is allocated before the record before it");
    if (!allocation.planned()) {
      if (allocation.memory != 0) refuse(i, "is in a memory and has no offset");
      continue;
    }
    if (allocation.size == 0) refuse(i, "has an offset for 0 bytes");
    if (allocation.memory >= plan.memories.size())
      refuse(i, "is in memory " + std::to_string(allocation.memory) + ", which does not exist");
    if (allocation.offset % plan.memories[allocation.memory].alignment != 0)
      refuse(i, "offset is not a multiple of the memory's alignment");
    total += allocation.size + allocation.alignment;  // at most 2^57: this notices long before it overflows
    if (total >> 62 != 0) refuse(i, "brings the sum of all sizes to 2^62 bytes or more");
  }
}

void PlanProof::prove_layout(const ProgramPlan& plan) const {
  struct Part {
    Problem problem;
    Plan plan;
    std::vector<size_t> records;
  };
  std::vector<Part> parts(plan.memories.size());
  for (size_t i = 0; i < plan.sequence.size(); ++i) {
    const PlannedAllocation& allocation = plan.sequence[i];
    if (!allocation.planned()) continue;
    Part& part = parts[allocation.memory];
    part.problem.push_back({allocation.lifetime, allocation.size, allocation.alignment});
    part.plan.offsets.push_back(allocation.offset);
    part.records.push_back(i);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    auto& [problem, offsets, records] = parts[i];
    offsets.arena_size = plan.memories[i].size;
    if (const auto violation = quick_check(problem, offsets)) {
      const size_t first = records[violation->first];
      const size_t second = records[violation->second];
      if (first == second) refuse(first, violation->what);
      refuse("records " + std::to_string(first) + " and " + std::to_string(second) + ": " + violation->what);
    }
    if (const Size most = load(problem); most != plan.memories[i].load) {
      refuse("the load of memory " + std::to_string(i) + " is " + bytes(most) + ", not " +
             std::to_string(plan.memories[i].load) + " as it says");
    }
  }
}

/// It may say more than it must, as long as that is true of the plan. Whoever lies on another begins above
/// its end, so there are no cycles.
void PlanProof::prove_skeleton(const ProgramPlan& plan) const {
  const auto refuse_skeleton = [&](const std::string& what) { refuse("skeleton: " + what); };
  const auto record = [](std::uint32_t number) { return "record " + std::to_string(number); };
  const Skeleton& skeleton = *plan.skeleton;
  const size_t records = plan.sequence.size();
  if (skeleton.first.size() != records + 1 || skeleton.first[0] != 0 ||
      skeleton.first[records] != skeleton.below.size() ||
      !std::is_sorted(skeleton.first.begin(), skeleton.first.end())) {
    refuse_skeleton("its lists are not one per record");
  }
  if (skeleton.order != order_by_offset(plan.sequence))
    refuse_skeleton("its order is not that of the offsets");
  for (std::uint32_t upper = 0; upper < records; ++upper) {
    const PlannedAllocation& above = plan.sequence[upper];
    const auto list = skeleton.below_of(upper);
    for (size_t i = 0; i < list.size(); ++i) {
      const std::uint32_t lower = list[i];
      if (lower >= records)
        refuse_skeleton(record(upper) + " lies on " + record(lower) + ", which does not exist");
      if (i != 0 && lower <= list[i - 1])
        refuse_skeleton("what " + record(upper) + " lies on is not in ascending order");
      const PlannedAllocation& under = plan.sequence[lower];
      if (!above.planned() || !under.planned())
        refuse_skeleton(record(upper) + " lies on " + record(lower) + ", and one of them is not planned");
      if (above.memory != under.memory || above.offset < under.offset + under.size)
        refuse_skeleton(record(upper) + " lies on " + record(lower) + ", which does not end below it");
    }
  }
  const Skeleton least = find_skeleton(plan.sequence);
  for (std::uint32_t upper = 0; upper < records; ++upper) {
    const auto said = skeleton.below_of(upper);
    for (const std::uint32_t lower : least.below_of(upper)) {
      if (!std::binary_search(said.begin(), said.end(), lower))
        refuse_skeleton(record(upper) + " lies on " + record(lower) + ", which it does not say");
    }
  }
}

}  // namespace memoir
