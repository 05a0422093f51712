// SPDX-License-Identifier: Apache-2.0
//
// The guided pool in a simulation: it follows a plan of an earlier run of the same program, for which the whole of
// a workload is planned beforehand.
#pragma once

#include <cstddef>

#include "memoir/heap/pool/guided_pool_heap.h"
#include "memoir/simulate/workload.h"

namespace memoir {

/// A plan of the whole workload for objects that begin at multiples of `alignment`, as a recording to follow.
/// Throws Error where planners do.
RecordedPlan plan_workload(const Workload& workload, Size alignment);

class GuidedRun final : public Heap {
 public:
  /// Plans the workload, and follows the plan each time that it is replayed.
  GuidedRun(const Workload& workload, Arena& arena, const DevicePoolOptions& options = {},
            StreamOrder* order = nullptr);

  bool ok() const noexcept { return heap_.ok() && follows_; }
  const GuidedPoolHeap& heap() const noexcept { return heap_; }

  Offset allocate(const Request& request) noexcept override {
    if (requests_++ == planned_) {  // the workload is replayed once more
      heap_.begin_pass();
      requests_ = 1;
    }
    return heap_.allocate(request);
  }
  bool free(Offset offset) noexcept override { return heap_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  void trim() noexcept override { heap_.trim(); }
  Size live() const noexcept override { return heap_.live(); }

 private:
  GuidedPoolHeap heap_;
  PlannedLayout layout_;
  std::size_t planned_ = 0;   // allocations of the plan
  std::size_t requests_ = 0;  // of this replay
  bool follows_ = false;
};

}  // namespace memoir
