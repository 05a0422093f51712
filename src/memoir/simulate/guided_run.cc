// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/guided_run.h"

#include <vector>

#include "memoir/policy/pool_plan.h"

namespace memoir {

RecordedPlan plan_workload(const Workload& workload, Size alignment) {
  Problem problem = workload.problem();
  std::vector<StreamId> streams;
  for (const Workload::Object& object : workload.objects()) streams.push_back(object.stream);
  const Plan plan = plan_for_pool(problem, streams, alignment);
  RecordedPlan recorded;
  recorded.arena_size = plan.arena_size;
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
