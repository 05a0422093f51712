// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/subproblem.h"

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

}  // namespace

Subproblem subproblem_of(const ConstrainedProblem& problem, const std::vector<bool>& kept) {
  const auto n = static_cast<std::uint32_t>(problem.buffers.size());
  const Constraints& said = problem.constraints;
  Subproblem out;
  std::vector<std::uint32_t> now(n, kNoBuffer);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!kept[i]) continue;
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
  left.loops = picked(said.loops, out.kept);
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
  std::erase_if(left.prices, [&](const PricedPair& pair) {
    return now[pair.first] == kNoBuffer || now[pair.second] == kNoBuffer;
  });
  for (PricedPair& pair : left.prices) pair.first = now[pair.first], pair.second = now[pair.second];
  return out;
}

}  // namespace memoir
