// SPDX-License-Identifier: Apache-2.0
//
// The oracle: every rule read off the problem, one after another, every pair compared with every other.
#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "memoir/plan/constrained/constraints.h"

namespace memoir {
namespace {

std::uint64_t key(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} << 32 | b; }

std::optional<Violation> check_shape(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  const std::size_t n = problem.buffers.size(),
                    arenas = std::max<std::size_t>(1, problem.constraints.arenas.size());
  if (plan.offsets.size() != n || plan.arenas.size() != n || plan.arena_sizes.size() != arenas) {
    return Violation{0, 0, "the plan is not of as many buffers or arenas as the problem"};
  }
  return std::nullopt;
}

std::optional<Violation> check_each(const ConstrainedProblem& problem, const ConstrainedPlan& plan,
                                    const std::vector<bool>& chosen) {
  const Constraints& said = problem.constraints;
  const std::vector<ArenaChoice> arenas = arenas_of(said);
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    if (!chosen[i]) continue;
    const auto& [lifetime, size, alignment] = problem.buffers[i];
    const Offset offset = plan.offsets[i];
    const std::uint32_t arena = plan.arenas[i];
    if (arena >= arenas.size()) return Violation{i, i, "it is in no arena"};
    if ((allowed_of(said, i) >> arena & 1) == 0) return Violation{i, i, "it may not be in that arena"};
    if (offset % alignment != 0) return Violation{i, i, "its offset is not a multiple of its alignment"};
    if (size != 0 && (size > plan.arena_sizes[arena] || offset > plan.arena_sizes[arena] - size)) {
      return Violation{i, i, "it ends outside the arena"};
    }
    if (!said.fixed.empty() && said.fixed[i] != kNoOffset && said.fixed[i] != offset) {
      return Violation{i, i, "it is not at its fixed offset"};
    }
    for (const Range& range : arenas[arena].forbidden) {
      if (range.overlaps({offset, size})) return Violation{i, i, "it touches a forbidden range"};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Violation> check(const ConstrainedProblem& problem, const ConstrainedPlan& plan,
                               const std::vector<bool>* only) {
  if (auto violation = check_shape(problem, plan)) return violation;
  const Constraints& said = problem.constraints;
  const auto n = static_cast<std::uint32_t>(problem.buffers.size());
  std::vector<bool> chosen = only != nullptr ? *only : std::vector<bool>(n, true);
  if (auto violation = check_each(problem, plan, chosen)) return violation;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (problem.buffers[i].size == 0) chosen[i] = false;  // it overlaps nothing
  }
  const auto range = [&](std::uint32_t i) { return Range{plan.offsets[i], problem.buffers[i].size}; };
  const auto wrong = [](std::uint32_t i, std::uint32_t j, const char* what) {
    return Violation{std::min(i, j), std::max(i, j), what};
  };

  std::vector<std::uint32_t> root(n);  // the buffer whose bytes it has in the end
  std::iota(root.begin(), root.end(), 0u);
  if (!said.alias.empty()) {
    for (std::uint32_t i = 0; i < n; ++i) {
      if (said.alias[i] == kNoBuffer || !chosen[i]) continue;
      if (plan.arenas[i] != plan.arenas[said.alias[i]] || plan.offsets[i] != plan.offsets[said.alias[i]]) {
        return wrong(i, said.alias[i], "they are aliases and do not share");
      }
      for (std::uint32_t steps = 0; said.alias[root[i]] != kNoBuffer && steps < n; ++steps)
        root[i] = said.alias[root[i]];
    }
  }
  for (std::uint32_t i = 0; i < said.after.size(); ++i) {
    const std::uint32_t below = said.after[i];
    if (below == kNoBuffer || !chosen[i] || !chosen[below]) continue;
    if (plan.arenas[i] != plan.arenas[below] || plan.offsets[i] != range(below).end()) {
      return wrong(i, below, "the one does not begin right after the other");
    }
  }
  for (const auto& [i, j] : said.apart) {
    if (chosen[i] && chosen[j] && plan.arenas[i] == plan.arenas[j] &&
        share_bank(said.banks, range(i), range(j))) {
      return wrong(i, j, "they share a bank");
    }
  }
  std::unordered_set<std::uint64_t> over;  // (output, input) at one offset
  for (const auto& [output, input] : said.in_place) {
    if (dies_at_birth(problem, output, input) && plan.offsets[output] == plan.offsets[input])
      over.insert(key(output, input));
  }
  for (const auto& [i, j] : said.conflicts) {
    if (!chosen[i] || !chosen[j] || plan.arenas[i] != plan.arenas[j]) continue;
    if (over.contains(key(i, j)) || over.contains(key(j, i))) continue;
    if (range(i).overlaps(range(j))) return wrong(i, j, "the two conflict and overlap");
  }
  if (!said.timed) return std::nullopt;

  // Every pair that lives together: births in order, next to the buffers still live.
  std::vector<std::vector<Piece>> pieces(n);
  for (std::uint32_t i = 0; i < n; ++i) pieces[i] = pieces_of(problem, i);
  std::vector<std::uint32_t> order(n), live;
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return problem.buffers[a].lifetime.begin < problem.buffers[b].lifetime.begin;
  });
  for (const std::uint32_t i : order) {
    if (!chosen[i]) continue;
    std::erase_if(
        live, [&](auto j) { return problem.buffers[j].lifetime.end <= problem.buffers[i].lifetime.begin; });
    for (const std::uint32_t j : live) {
      if (plan.arenas[i] != plan.arenas[j] || root[i] == root[j] || !range(i).overlaps(range(j))) continue;
      if (over.contains(key(i, j)) || over.contains(key(j, i))) continue;
      for (const Piece& a : pieces[i]) {
        for (const Piece& b : pieces[j]) {
          const Range left{plan.offsets[i] + a.window.begin, a.window.size};
          const Range right{plan.offsets[j] + b.window.begin, b.window.size};
          if (a.lifetime.overlaps(b.lifetime) && left.overlaps(right))
            return wrong(i, j, "the two live at the same time and overlap");
        }
      }
    }
    live.push_back(i);
  }
  return std::nullopt;
}

}  // namespace memoir
