// SPDX-License-Identifier: Apache-2.0
//
// The guided pool as a policy: it follows the plan of an earlier run of the same program from its first
// request on, and is the pool that learns wherever, and from when on, the run differs.
//
//   the plan       a  b  c  d  e ... z | again, when the program goes on
//   this run       a  b  x  d  e ... z       x: from the pool online, in the memory that the plan leaves idle
//   another run    q  r  s  t  u ...          lost: the plan is given up, and loops are looked for
//
// A plan is a hint: a place that is taken is not handed out, so a run that differs is looser, never wrong.
#pragma once

#include "memoir/heap/pool/guided_pool_heap.h"
#include "memoir/policy/learning_heap.h"

namespace memoir {

class GuidedRunHeap final : public Heap {
 public:
  /// As LearningHeap. `plan` is one for objects at multiples of options.alignment; an empty one is none.
  /// `learns`: when the plan is given up it looks for loops, and `runner` plans them.
  GuidedRunHeap(const RecordedPlan& plan, Arena& arena, const DevicePoolOptions& options = {},
                StreamOrder* order = nullptr, Segments* plain = nullptr, bool learns = true,
                PlanRunner* runner = nullptr) noexcept;
  GuidedRunHeap(const GuidedRunHeap&) = delete;
  GuidedRunHeap& operator=(const GuidedRunHeap&) = delete;

  /// False when there was no metadata memory, or the arena has no room for the plan.
  bool ok() const noexcept { return ok_; }
  /// False when there was no plan, or it was given up.
  bool follows() const noexcept { return follows_; }
  /// The given plan counts as the first.
  LearningHeap::Counters counters() const noexcept;
  const GuidedPoolHeap& guided() const noexcept { return guided_; }
  const DevicePoolHeap& pool() const noexcept { return guided_.pool(); }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override { return online_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return online_.size_of(offset); }
  void trim() noexcept override { online_.trim(); }
  Size live() const noexcept override { return online_.live(); }

 private:
  void give_up() noexcept;

  LearningHeap online_;
  PlannedLayout layout_;
  GuidedPoolHeap guided_;  // over online_'s pool
  bool learns_;
  bool has_sites_;  // else those of requests are not looked at
  bool follows_ = false;
  bool ok_ = false;
  LearningHeap::Counters past_;  // of passes that ended
};

}  // namespace memoir
