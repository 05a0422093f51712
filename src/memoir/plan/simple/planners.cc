// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/planners.h"

#include <array>

#include "memoir/base/error.h"
#include "memoir/plan/simple/aligned_load.h"
#include "memoir/plan/simple/best_fit.h"
#include "memoir/plan/simple/boxing.h"
#include "memoir/plan/simple/gergov.h"
#include "memoir/plan/simple/greedy.h"
#include "memoir/plan/simple/hill_climb.h"
#include "memoir/plan/simple/mincost_flow.h"

namespace memoir {
namespace {

constexpr Planner kPlanners[] = {
    {"bump", "end to end, no reuse", bump},
    {"greedy_by_size", "largest buffer first, into the smallest gap", greedy_by_size},
    {"greedy_by_breadth", "busiest tick first, its largest buffer first", greedy_by_breadth},
    {"greedy_by_conflicts", "the one that meets the most others first, into the lowest gap",
     greedy_by_conflicts},
    {"first_fit_by_start", "earliest born first, into the lowest gap", first_fit_by_start},
    {"first_fit_by_length", "longest-lived first, into the lowest gap", first_fit_by_length},
    {"first_fit_by_area", "largest size x length first, into the lowest gap", first_fit_by_area},
    {"best_fit", "lowest part of the skyline first, the longest-lived buffer onto it", best_fit},
    {"gergov", "3-approximation, then compacted", gergov},
    {"boxing", "boxes of equal height within boxes, then first fit by their order", boxing},
    {"hill_climb", "first fit in an order improved by exchanging two at a time", hill_climb,
     hill_climb_within},
    {"mincost_flow", "whole objects shared along a minimum-cost flow, laid end to end", mincost_flow},
};

// Those that take the least time on average first. On many buffers, those whose worst case is the best:
// 62,000 live at a time cost the greedy ones seconds, the others 0.2 s.
constexpr std::string_view kQuick[] = {"greedy_by_size", "greedy_by_breadth", "best_fit", "gergov"};
constexpr std::string_view kQuickForMany[] = {"best_fit", "gergov", "greedy_by_breadth", "greedy_by_size"};
constexpr std::size_t kMany = 20'000;

const Planner* named(std::string_view name) {
  for (const Planner& planner : kPlanners) {
    if (planner.name == name) return &planner;
  }
  return nullptr;
}

}  // namespace

std::span<const Planner> planners() noexcept { return kPlanners; }

std::span<const Planner* const> cheap_planners() noexcept {
  static const std::array<const Planner*, 9> cheap{named("best_fit"),
                                                   named("first_fit_by_length"),
                                                   named("first_fit_by_start"),
                                                   named("first_fit_by_area"),
                                                   named("greedy_by_size"),
                                                   named("greedy_by_breadth"),
                                                   named("greedy_by_conflicts"),
                                                   named("gergov"),
                                                   named("boxing")};
  return cheap;
}

const Planner& find_planner(std::string_view name) {
  std::string names;
  if (const Planner* planner = named(name)) return *planner;
  for (const Planner& planner : kPlanners) {
    names += (names.empty() ? "" : ", ") + std::string(planner.name);
  }
  throw Error("there is no planner called '" + std::string(name) + "'; there are " + names);
}

Plan plan_quickly(const Problem& problem, std::string_view* planner) {
  const Size floor = aligned_load(problem);
  Plan best;
  for (const std::string_view name : problem.size() > kMany ? kQuickForMany : kQuick) {
    Plan plan = find_planner(name).run(problem);
    if (best.offsets.empty() || plan.arena_size < best.arena_size) {
      best = std::move(plan);
      if (planner != nullptr) *planner = name;
    }
    if (best.arena_size == floor) break;
  }
  return best;
}

}  // namespace memoir
