// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/planners.h"

#include "memoir/base/error.h"
#include "memoir/plan/aligned_load.h"
#include "memoir/plan/best_fit.h"
#include "memoir/plan/gergov.h"
#include "memoir/plan/greedy.h"
#include "memoir/plan/mincost_flow.h"

namespace memoir {
namespace {

constexpr Planner kPlanners[] = {
    {"bump", "end to end, no reuse", bump},
    {"greedy_by_size", "largest buffer first, into the smallest gap", greedy_by_size},
    {"greedy_by_breadth", "busiest tick first, its largest buffer first", greedy_by_breadth},
    {"best_fit", "lowest part of the skyline first, the longest-lived buffer onto it", best_fit},
    {"gergov", "3-approximation, then compacted", gergov},
    {"mincost_flow", "whole objects shared along a minimum-cost flow, laid end to end", mincost_flow},
};

constexpr std::string_view kQuick[] = {"greedy_by_size", "greedy_by_breadth", "best_fit", "gergov"};

}  // namespace

std::span<const Planner> planners() noexcept { return kPlanners; }

const Planner& find_planner(std::string_view name) {
  std::string names;
  for (const Planner& planner : kPlanners) {
    if (planner.name == name) return planner;
    names += (names.empty() ? "" : ", ") + std::string(planner.name);
  }
  throw Error("there is no planner called '" + std::string(name) + "'; there are " + names);
}

Plan plan_quickly(const Problem& problem, std::string_view* planner) {
  const Size floor = aligned_load(problem);
  Plan best;
  for (const std::string_view name : kQuick) {
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
