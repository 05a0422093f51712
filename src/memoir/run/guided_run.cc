// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/guided_run.h"

#include <algorithm>

#include "memoir/plan/planners.h"

namespace memoir {

namespace {
constexpr std::size_t kQuickly = 20'000;  // objects: beyond, only the one planner is quick enough
}  // namespace

RecordedPlan plan_workload(const Workload& workload, Size alignment) {
  Problem problem = workload.problem();
  for (Buffer& buffer : problem) buffer.alignment = std::max(buffer.alignment, alignment);
  RecordedPlan recorded;
  const bool quickly = problem.size() <= kQuickly;
  std::string_view planner = "best_fit";
  const Plan plan = quickly ? plan_quickly(problem, &planner) : find_planner(planner).run(problem);
  recorded.planner = planner;
  recorded.arena_size = align_up(plan.arena_size, alignment);
  recorded.load = workload.peak_live();
  recorded.sequence.reserve(problem.size());
  for (std::size_t i = 0; i < problem.size(); ++i) {
    recorded.sequence.push_back({workload.objects()[i].site, problem[i].size, problem[i].alignment,
                                 problem[i].lifetime, plan.offsets[i]});
  }
  return recorded;
}

GuidedRun::GuidedRun(const Workload& workload, Arena& arena, const DevicePoolOptions& options,
                     StreamOrder* order)
    : heap_(arena, options, order), layout_(plan_workload(workload, options.alignment)) {
  planned_ = layout_.entries().size();
  follows_ = heap_.ok() && (planned_ == 0 || heap_.follow(&layout_));
}

}  // namespace memoir
