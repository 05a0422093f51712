// SPDX-License-Identifier: Apache-2.0
//
// The device pool, guided: it follows the plan of an earlier pass or run of the same program, and is the
// online pool wherever the run departs from it.
//
//   addresses   | the plan's, set aside for it    | everything else
//               |  a |    b    |  ...             |  escaping objects, extra ones, those whose place is taken
//   memory      |====|=========|                  |======|        granules follow what is used, on both sides
//
// The two parts have addresses of their own, but one and the same memory: what the plan leaves idle is moved
// to what departed, when the device has no more, or as soon as the run is lost. So the plan costs nothing but
// addresses when it is of no use, and a pass that follows it makes no device calls and no searches.
#pragma once

#include <optional>

#include "memoir/heap/planned/plan_cursor.h"
#include "memoir/heap/pool/device_pool_heap.h"

namespace memoir {

class GuidedPoolHeap final : public Heap {
 public:
  struct Counters {               // since begin_pass()
    std::uint64_t planned = 0;    // matched, and served at their planned place unless the run is lost
    std::uint64_t escaping = 0;   // matched an allocation that the recording left out of the plan
    std::uint64_t unmatched = 0;  // no recorded allocation fits
    std::uint64_t occupied = 0;   // matched, but the place was taken, or a stream could not be ordered
  };

  /// As DevicePoolHeap; follows nothing yet.
  explicit GuidedPoolHeap(Arena& arena, const DevicePoolOptions& options = {}, StreamOrder* order = nullptr,
                          Segments* plain = nullptr) noexcept
      : own_(std::in_place, arena, options, order, plain), pool_(*own_), online_(*own_) {}
  /// Over the pool of another heap, `online`, which serves what the plan does not; both are kept alive by the
  /// caller.
  GuidedPoolHeap(DevicePoolHeap& pool, Heap& online) noexcept : pool_(pool), online_(online) {}
  GuidedPoolHeap(const GuidedPoolHeap&) = delete;
  GuidedPoolHeap& operator=(const GuidedPoolHeap&) = delete;

  bool ok() const noexcept { return pool_.ok(); }

  /// From now on follows `layout` (kept alive by the caller), at the start of a pass; nullptr: none. What
  /// lives stays where it is. False, and it follows nothing, when the layout is not ok(), or the arena has no
  /// hole of the plan's size.
  bool follow(const PlannedLayout* layout) noexcept;
  /// Back to the start of the recording. Objects that are still live stay live, and their places taken.
  void begin_pass() noexcept;
  /// True when nothing of the plan is left to come.
  bool at_end() const noexcept { return layout_ != nullptr && cursor_->at_end(); }
  /// True when too much of this pass departed for the plan to be of any use.
  bool is_lost() const noexcept { return layout_ != nullptr && pool_.treats_aside() == Aside::kYield; }

  const Counters& counters() const noexcept { return counters_; }
  const DevicePoolHeap& pool() const noexcept { return pool_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override { return online_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return online_.size_of(offset); }
  void trim() noexcept override { online_.trim(); }
  Size live() const noexcept override { return online_.live(); }

 private:
  using Aside = DevicePoolHeap::Aside;

  Aside how() const noexcept;

  std::optional<DevicePoolHeap> own_;  // unless it is another's
  DevicePoolHeap& pool_;
  Heap& online_;
  const PlannedLayout* layout_ = nullptr;
  std::optional<PlanCursor> cursor_;
  std::uint32_t passes_ = 0;  // that followed it to their end
  Counters counters_;
};

}  // namespace memoir
