// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/empty_buffers.h"

#include <utility>

namespace memoir {
namespace {

std::uint32_t cheapest_arena(const ConstrainedProblem& problem, std::size_t buffer) {
  const std::vector<ArenaChoice> arenas = arenas_of(problem.constraints);
  const std::uint64_t allowed = allowed_of(problem.constraints, buffer);
  std::uint32_t best = kNoBuffer;
  for (std::uint32_t k = 0; k < arenas.size(); ++k) {
    if ((allowed >> k & 1) != 0 && (best == kNoBuffer || arenas[k].cost < arenas[best].cost)) best = k;
  }
  return best;
}

}  // namespace

Subproblem without_empty(const ConstrainedProblem& problem) {
  std::vector<bool> kept;
  for (const Buffer& buffer : problem.buffers) kept.push_back(buffer.size != 0);
  return subproblem_of(problem, kept);
}

ConstrainedResult with_empty(const ConstrainedProblem& problem, const Subproblem& reduced,
                             ConstrainedResult result) {
  const Constraints& said = problem.constraints;
  ConstrainedPlan whole;
  whole.arena_sizes = std::move(result.plan.arena_sizes);
  if (result.found) {
    whole.offsets.assign(problem.buffers.size(), 0);
    whole.arenas.assign(problem.buffers.size(), 0);
    for (std::size_t k = 0; k < reduced.kept.size(); ++k) {
      whole.offsets[reduced.kept[k]] = result.plan.offsets[k];
      whole.arenas[reduced.kept[k]] = result.plan.arenas[k];
    }
  }
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].size != 0) continue;
    std::uint32_t arena = cheapest_arena(problem, i);
    Offset offset = 0;
    if (!said.fixed.empty() && said.fixed[i] != kNoOffset) {
      offset = said.fixed[i];
    } else if (!said.old.empty() && said.old[i].offset != kNoOffset &&
               said.old[i].offset % problem.buffers[i].alignment == 0 &&
               (allowed_of(said, i) >> said.old[i].arena & 1) != 0) {
      offset = said.old[i].offset;
      arena = said.old[i].arena;
    }
    const std::uint64_t cost = weight_of(problem, i) * arenas_of(said)[arena].cost;
    result.lower_bound.cost += cost;
    result.objective.cost += cost;
    if (!result.found) continue;
    whole.offsets[i] = offset;
    whole.arenas[i] = arena;
  }
  result.plan = std::move(whole);
  return result;
}

}  // namespace memoir
