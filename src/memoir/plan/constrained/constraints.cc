// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/constraints.h"

#include <algorithm>

namespace memoir {

bool Constraints::none() const { return said(*this).empty(); }

std::vector<std::string> said(const Constraints& constraints) {
  const auto& [gaps, fixed, hints, low_sizes, alias, after, allowed, weights, old, loops, in_place, apart,
               conflicts, prices, arenas, banks, moves, locality, timed] = constraints;
  const bool forbidden = std::any_of(arenas.begin(), arenas.end(),
                                     [](const ArenaChoice& arena) { return !arena.forbidden.empty(); });
  std::vector<std::string> names;
  const auto add = [&](bool is, const char* name) {
    if (is) names.emplace_back(name);
  };
  add(!gaps.empty(), "gaps");
  add(!fixed.empty(), "fixed");
  add(!hints.empty(), "hint");
  add(!low_sizes.empty(), "size_low");
  add(!alias.empty(), "alias");
  add(!after.empty(), "after");
  add(!in_place.empty(), "in_place");
  add(!apart.empty(), "apart");
  add(arenas.size() > 1 || !allowed.empty() || (!arenas.empty() && !forbidden), "arenas");
  add(!weights.empty(), "weight");
  add(forbidden, "forbid");
  add(!old.empty() || moves, "replan");
  add(!conflicts.empty() || !timed, "conflicts");
  add(locality, "locality");
  add(!loops.empty(), "loop");
  add(!prices.empty(), "price");
  return names;
}

std::string ConstrainedProblem::name(std::size_t buffer) const {
  if (buffer < lines.size()) return source + ":" + std::to_string(lines[buffer]);
  return std::string("buffer ") + std::to_string(buffer);
}

std::string ConstrainedProblem::refusal(std::size_t buffer, const std::string& what) const {
  return name(buffer) + (buffer < lines.size() ? ": " : " ") + what;
}

std::vector<ArenaChoice> arenas_of(const Constraints& constraints) {
  if (constraints.arenas.empty()) return {ArenaChoice{}};
  return constraints.arenas;
}

std::uint64_t weight_of(const ConstrainedProblem& problem, std::size_t buffer) {
  const auto& weights = problem.constraints.weights;
  return weights.empty() ? problem.buffers[buffer].size : weights[buffer];
}

std::uint64_t allowed_of(const Constraints& constraints, std::size_t buffer) {
  const std::size_t count = std::max<std::size_t>(constraints.arenas.size(), 1);
  const std::uint64_t all = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  return constraints.allowed.empty() ? all : constraints.allowed[buffer] & all;
}

std::vector<Piece> pieces_of(const ConstrainedProblem& problem, std::size_t buffer) {
  const Lifetime lifetime = problem.buffers[buffer].lifetime;
  const Size size = problem.buffers[buffer].size;
  const auto& gaps = problem.constraints.gaps;
  std::vector<Piece> pieces;
  Tick from = lifetime.begin;
  const auto whole_until = [&](Tick end) {
    if (from < end) pieces.push_back({{from, end}, {0, size}});
  };
  if (!gaps.empty()) {
    for (const Gap& gap : gaps[buffer]) {
      whole_until(gap.lifetime.begin);
      if (gap.window) pieces.push_back({gap.lifetime, *gap.window});
      from = gap.lifetime.end;
    }
  }
  whole_until(lifetime.end);
  return pieces;
}

bool dies_at_birth(const ConstrainedProblem& problem, std::size_t output, std::size_t input) {
  if (!problem.constraints.timed) return true;
  const Lifetime &out = problem.buffers[output].lifetime, &in = problem.buffers[input].lifetime;
  return in.begin <= out.begin && in.end <= out.begin + 1;
}

bool share_bank(const Banks& banks, Range a, Range b) {
  if (banks.count == 0) return false;
  const auto touched = [&](Range range) {
    std::vector<bool> touched(banks.count);
    const Size first = range.begin / banks.width, last = (range.end() - 1) / banks.width;
    for (Size k = first; k <= last && k - first < banks.count; ++k) touched[k % banks.count] = true;
    return touched;
  };
  const std::vector<bool> left = touched(a), right = touched(b);
  for (Size k = 0; k < banks.count; ++k) {
    if (left[k] && right[k]) return true;
  }
  return false;
}

bool fits(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  const std::vector<ArenaChoice> arenas = arenas_of(problem.constraints);
  for (std::size_t k = 0; k < arenas.size(); ++k) {
    if (plan.arena_sizes[k] > arenas[k].capacity) return false;
  }
  return !problem.constraints.moves || count_moves(problem, plan) <= *problem.constraints.moves;
}

std::uint64_t count_moves(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  const auto& old = problem.constraints.old;
  std::uint64_t moves = 0;
  for (std::size_t i = 0; i < old.size(); ++i) {
    moves +=
        old[i].offset != kNoOffset && (old[i].offset != plan.offsets[i] || old[i].arena != plan.arenas[i]);
  }
  return moves;
}

std::uint64_t cost_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  const std::vector<ArenaChoice> arenas = arenas_of(problem.constraints);
  std::uint64_t cost = 0;
  for (std::size_t i = 0; i < plan.arenas.size(); ++i)
    cost += weight_of(problem, i) * arenas[plan.arenas[i]].cost;
  return cost;
}

std::uint64_t count_hints(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  const auto& hints = problem.constraints.hints;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < hints.size(); ++i)
    count += hints[i] != kNoOffset && hints[i] == plan.offsets[i];
  return count;
}

bool shares(const ConstrainedProblem& problem, const ConstrainedPlan& plan, const PricedPair& pair) {
  const auto& [a, b, _] = pair;
  const Size x = problem.buffers[a].size, y = problem.buffers[b].size;
  return plan.arenas[a] == plan.arenas[b] && x != 0 && y != 0 && plan.offsets[a] < plan.offsets[b] + y &&
         plan.offsets[b] < plan.offsets[a] + x;
}

Size paid(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  Size bytes = 0;
  for (const PricedPair& pair : problem.constraints.prices) {
    if (shares(problem, plan, pair)) bytes += pair.price;
  }
  return bytes;
}

Objective objective_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan) {
  Objective objective;
  if (!problem.constraints.moves) objective.moves = count_moves(problem, plan);
  objective.cost = cost_of(problem, plan);
  for (const Size size : plan.arena_sizes) objective.total += size;
  return objective;
}

}  // namespace memoir
