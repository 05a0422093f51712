// SPDX-License-Identifier: Apache-2.0
//
// The guided pool that makes its own plan: it records a pass of the program (a training step, a forward pass),
// plans it at the begin of the next, and follows the plan from there on.
//
//   pass        set-up   | 1         | 2                 | 3 ...
//   the pool    online   | records   | follows: memory   | follows: no device calls
//                        |           | moves to the plan |
//
// A pass that departs too often, or goes on to call the device, is recorded again. Passes that never repeat are left alone more and more: the
// wait for the next recording doubles each time that a plan was of no use.
#pragma once

#include <memory>

#include "memoir/heap/guided_pool_heap.h"
#include "memoir/heap/offset_table.h"
#include "memoir/plan/recorded_plan.h"

namespace memoir {

class LearningPool final : public Heap {
 public:
  /// As DevicePoolHeap.
  explicit LearningPool(Arena& arena, const DevicePoolOptions& options = {}, StreamOrder* order = nullptr,
                        Segments* plain = nullptr) noexcept
      : heap_(arena, options, order, plain), options_(options) {}

  bool ok() const noexcept { return heap_.ok(); }

  /// The program begins a pass. May plan, which takes memory from malloc and some milliseconds; when that fails
  /// the pool goes on without a plan.
  void begin_pass() noexcept;
  /// True while a plan is followed.
  bool follows() const noexcept { return layout_ != nullptr; }
  const GuidedPoolHeap& heap() const noexcept { return heap_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override;
  Size size_of(Offset offset) const noexcept override { return heap_.size_of(offset); }
  void trim() noexcept override { heap_.trim(); }
  Size live() const noexcept override { return heap_.live(); }

 private:
  static constexpr Tick kOpen = ~Tick{0};
  struct Record {
    Request request;
    Lifetime lifetime;  // in events of the pass; ends at kOpen when it was not freed in it
  };

  bool departed() const noexcept;
  bool calls_for_ever() const noexcept;
  bool plan() noexcept;

  GuidedPoolHeap heap_;
  DevicePoolOptions options_;
  std::unique_ptr<PlannedLayout> layout_;  // what is followed
  MetadataArray<Record> records_;          // of this pass, when it is recorded
  OffsetTable record_at_;                  // of live objects: 1 + index of records_
  Tick tick_ = 0;
  bool recording_ = false;
  std::uint32_t followed_ = 0;  // passes, by this plan
  std::uint64_t calls_ = 0;     // to the device, before this pass
  std::uint32_t patience_ = 1;  // passes until the next recording, when a plan is of no use
  std::uint32_t left_ = 1;
};

}  // namespace memoir
