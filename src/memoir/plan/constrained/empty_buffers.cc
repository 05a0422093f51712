// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/empty_buffers.h"

#include <utility>

namespace memoir {
namespace {

template <class Value>
std::vector<Value> picked(const std::vector<Value>& all, const std::vector<std::uint32_t>& kept) {
  std::vector<Value> out;
  if (all.empty()) return out;
  out.reserve(kept.size());
  for (const std::uint32_t i : kept) out.push_back(all[i]);
  return out;
}

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

WithoutEmpty without_empty(const ConstrainedProblem& problem) {
  const auto n = static_cast<std::uint32_t>(problem.buffers.size());
  const Constraints& said = problem.constraints;
  WithoutEmpty out;
  std::vector<std::uint32_t> now(n, kNoBuffer);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (problem.buffers[i].size == 0) continue;
    now[i] = static_cast<std::uint32_t>(out.kept.size());
    out.kept.push_back(i);
  }
  ConstrainedProblem& reduced = out.problem;
  reduced.buffers = picked(problem.buffers, out.kept);
  reduced.source = problem.source;
  reduced.lines = picked(problem.lines, out.kept);
  Constraints& left = reduced.constraints;
  left = said;
  left.gaps = picked(said.gaps, out.kept);
  left.fixed = picked(said.fixed, out.kept);
  left.hints = picked(said.hints, out.kept);
  left.low_sizes = picked(said.low_sizes, out.kept);
  left.alias = picked(said.alias, out.kept);
  left.after = picked(said.after, out.kept);
  left.allowed = picked(said.allowed, out.kept);
  left.weights = picked(said.weights, out.kept);
  left.old = picked(said.old, out.kept);
  for (std::uint32_t& other : left.alias) {
    if (other != kNoBuffer) other = now[other];
  }
  for (std::uint32_t& below : left.after) {
    while (below != kNoBuffer && now[below] == kNoBuffer) below = said.after[below];
    if (below != kNoBuffer) below = now[below];
  }
  for (auto* pairs : {&left.in_place, &left.apart, &left.conflicts}) {
    std::erase_if(*pairs, [&](const auto& pair) {
      return now[pair.first] == kNoBuffer || now[pair.second] == kNoBuffer;
    });
    for (auto& [i, j] : *pairs) i = now[i], j = now[j];
  }
  return out;
}

ConstrainedResult with_empty(const ConstrainedProblem& problem, const WithoutEmpty& reduced,
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
