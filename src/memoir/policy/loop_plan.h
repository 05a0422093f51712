// SPDX-License-Identifier: Apache-2.0
//
// The plan of one round of a loop, made from what the loop's detector saw, and the heap that follows it. The
// work is bounded in steps (few_waits.h), not in time: a round has the same plan on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "memoir/heap/planned/planned_heap.h"
#include "memoir/policy/loop_round.h"
#include "memoir/policy/plan_job.h"
#include "memoir/policy/slab_streams.h"

namespace memoir {

/// A plan with all that follows it.
struct LoopPlan {
  std::unique_ptr<PlannedLayout> layout;  // its sites are 1 + a stream
  std::unique_ptr<PlannedHeap> heap;      // follows it
  std::unique_ptr<SlabStreams> streams;
  StreamId owner = 0;        // the stream that uses most of it
  std::uint32_t first = 0;   // number of a request that was the first of the plan
  std::uint32_t period = 0;  // requests in a round
  Size room = 0;             // bytes that the device may have taken in addition to the slab
  /// It can begin with its first request only: later, more of what passes would come in addition to the slab.
  bool at_cut = false;
};

class LoopPlanJob final : public PlanJob {
 public:
  /// Steps that a plan of a round may take: up to 50 ms for one stream of 5,000 objects, 150 ms for several.
  static constexpr std::uint64_t kSteps = 75'000'000;

  /// Of a detector whose period() is not 0: copies what it needs of it. Pool and slab may take `bound` bytes.
  /// Throws std::bad_alloc.
  LoopPlanJob(const LoopDetector& detector, Size alignment, Size bound, StreamOrder* order)
      : round_(detector), made_(detector.next()), alignment_(alignment), bound_(bound), order_(order) {}

  /// Number of the request at which it was made.
  std::uint32_t made() const noexcept { return made_; }
  std::uint32_t period() const noexcept { return static_cast<std::uint32_t>(round_.objects.size()); }
  /// Once it is done: the plan; nullptr when there is none that keeps to the bound, or no memory for one.
  const LoopPlan* made_plan() const noexcept { return made_plan_.get(); }
  std::unique_ptr<LoopPlan> take() noexcept { return std::move(made_plan_); }

 private:
  void plan() noexcept override;
  std::unique_ptr<LoopPlan> plan_round(std::uint32_t cut, bool with_passing, std::uint64_t steps) const;

  const LoopRound round_;
  const std::uint32_t made_;
  const Size alignment_, bound_;
  StreamOrder* const order_;  // for the plan's streams; not asked here
  std::unique_ptr<LoopPlan> made_plan_;
};

}  // namespace memoir
