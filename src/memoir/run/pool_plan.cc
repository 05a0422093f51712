// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/pool_plan.h"

#include <algorithm>
#include <map>
#include <vector>

#include "memoir/plan/planners.h"

namespace memoir {

namespace {

constexpr size_t kQuickly = 20'000;  // buffers: beyond, only the one planner is quick enough

Plan plan_one(const Problem& problem) {
  return problem.size() <= kQuickly ? plan_quickly(problem) : find_planner("best_fit").run(problem);
}

}  // namespace

Plan plan_for_pool(Problem& problem, std::span<const StreamId> streams, Size alignment) {
  for (Buffer& buffer : problem) buffer.alignment = std::max(buffer.alignment, alignment);
  Plan together = plan_one(problem);
  together.arena_size = align_up(together.arena_size, alignment);
  std::map<StreamId, std::vector<size_t>> members;
  for (size_t i = 0; i < problem.size(); ++i) members[streams[i]].push_back(i);
  if (members.size() < 2) return together;
  Plan apart{std::vector<Offset>(problem.size()), 0};
  for (const auto& [stream, buffers] : members) {
    Problem part;
    for (const size_t i : buffers) part.push_back(problem[i]);
    const Plan plan = plan_one(part);
    Size strictest = alignment;  // offsets are relative to where the part begins
    for (const Buffer& buffer : part) strictest = std::max(strictest, buffer.alignment);
    const Offset begin = align_up(apart.arena_size, strictest);
    for (size_t i = 0; i < buffers.size(); ++i) apart.offsets[buffers[i]] = begin + plan.offsets[i];
    apart.arena_size = begin + align_up(plan.arena_size, alignment);
  }
  const double allowed = static_cast<double>(together.arena_size) * (1 + kApartShare);
  return static_cast<double>(apart.arena_size) <= allowed ? apart : together;
}

}  // namespace memoir
