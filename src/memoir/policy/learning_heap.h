// SPDX-License-Identifier: Apache-2.0
//
// memoir's device pool, which learns: it is the online pool (heap/pool/device_pool_heap.h), and when it sees
// that a program repeats itself (heap/pool/loop_detector.h) and still calls the device, it plans one round
// and follows the plan.
//
//   rounds of the loop   | 1        | 2        | 3                4 ...
//   the pool             | online   | online   | a slab in its own memory, laid out by the plan: no device
//                                              ^ calls, no searches; what the plan does not know goes online
//
// Round 2 is like round 1, so at its end every lifetime is known, those of objects that pass from one round
// to the next as well. The plan is a job (plan_job.h) that the heap does not wait for: what comes of it
// counts from the next start of a round on, which is at once where the job runs at once. The slab is an
// object of the online pool, which moves idle memory there. It is made at a moment when so little lives that
// pool and slab together stay within the bounds of the online pool; where too much passes from round to round
// for that, what passes is not planned.
//
// When the program departs from the plan (another phase begins, a shape changes), or memory is short, or
// somebody asks for it (trim), the slab becomes the objects that live in it, each where it is, and the rest
// of its bytes is free again: the online pool goes on as if there had never been a plan. Loops that keep
// departing are waited for longer each time.
//
// A plan takes memory from malloc, and at most some 50 ms, counted in steps.
#pragma once

#include <memory>
#include <tuple>

#include "memoir/heap/planned/planned_heap.h"
#include "memoir/heap/pool/device_pool_heap.h"
#include "memoir/policy/loop_plan.h"

namespace memoir {

struct LearningOptions : DevicePoolOptions {
  bool learn = true;

  static constexpr auto fields() {
    return std::tuple_cat(
        DevicePoolOptions::fields(),
        std::tuple{OptionField{"learn", &LearningOptions::learn, Unit::kFlag,
                               "plan the rounds of a loop that repeats, and follow the plan"}});
  }
};

class LearningHeap final : public Heap {
 public:
  struct Counters {
    std::uint64_t plans = 0;     // that were followed
    std::uint64_t planned = 0;   // requests that were served by them
    std::uint64_t departed = 0;  // that were not, while one was followed
    std::uint64_t dropped = 0;   // plans that were given up
  };

  /// As DevicePoolHeap. `runner` has plans made, kept alive by the caller; without one they are made where
  /// they are asked for.
  explicit LearningHeap(Arena& arena, const LearningOptions& options = {}, StreamOrder* order = nullptr,
                        Segments* plain = nullptr, PlanRunner* runner = nullptr) noexcept;

  bool ok() const noexcept { return pool_.ok(); }
  bool follows() const noexcept { return planned_ != nullptr; }
  const Counters& counters() const noexcept { return counters_; }
  const DevicePoolHeap& pool() const noexcept { return pool_; }
  /// For a heap that knows where things will go (guided_run_heap.h), while nothing is learned.
  DevicePoolHeap& pool() noexcept { return pool_; }
  /// From now on loops are looked for, whatever the options say.
  void start_learning() noexcept;

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override;
  /// Gives up the plan as well.
  void trim() noexcept override;
  Size live() const noexcept override {
    return planned_ == nullptr ? pool_.live() : pool_.live() - slab_.size + planned_->live();
  }

 private:
  Offset follow(const Request& request) noexcept;
  bool begins_round(const Request& request) const noexcept;
  Offset match(const Request& request) noexcept;
  bool may_stay(const Request& request) const noexcept;
  void begin_round() noexcept;
  void learn() noexcept;
  void have_planned() noexcept;
  void look_at_job() noexcept;
  void postpone() noexcept;
  bool adopt(std::uint32_t place) noexcept;
  void give_up() noexcept;
  bool is_in_slab(Offset offset) const noexcept { return offset - slab_.begin < slab_.size; }
  /// Bytes that pool and slab may take where live objects held so many.
  Size most_reserved(Size held) const noexcept;

  DevicePoolHeap pool_;
  const Arena& arena_;
  StreamOrder* order_;
  LearningOptions options_;
  LoopDetector detector_;
  PlanRunner* runner_;
  std::shared_ptr<LoopPlanJob> job_;   // under way, or its plan waits for the start of a round
  std::unique_ptr<LoopPlan> pending_;  // waits for a moment at which little lives
  std::uint32_t pending_since_ = 0;    // number of a request
  Size pending_live_ = 0;  // bytes: when no more are live, it is worth looking whether there is room
  std::unique_ptr<PlannedLayout> layout_;
  std::unique_ptr<PlannedHeap> planned_;  // follows layout_
  std::unique_ptr<SlabStreams> streams_;
  Range slab_;                  // of size 0: there is none
  Size peak_held_ = 0;          // the pool's, before there was a slab
  std::uint64_t departed_ = 0;  // requests of this round that the plan did not serve and should have
  std::uint64_t calls_ = 0;     // to the device, before this round
  std::uint32_t rounds_ = 0;    // begun under this plan
  std::uint32_t patience_ = 1;  // rounds that must repeat before the next plan
  Counters counters_;
};

}  // namespace memoir
