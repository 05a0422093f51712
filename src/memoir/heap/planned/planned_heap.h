// SPDX-License-Identifier: Apache-2.0
//
// The heap that follows a plan. It keeps its place in the recorded sequence of allocations; a request that is
// the next one of the recording gets the planned offset. A plan is a hint: an offset is handed out only if
// its range is free at that moment, so a run that departs from its recording is looser, never wrong.
//
//   recorded   conv:64   relu:64   conv:32   out:16(escapes)
//   requested  conv:64   extra:8   relu:64   conv:32   out:16
//   answer     planned   elsewhere planned   planned   elsewhere
//
// Which recorded allocation a request is: plan_cursor.h. A caller that knows no sites (kNoSite) is answered
// in step only; see in_step().
#pragma once

#include "memoir/heap/heap.h"
#include "memoir/heap/planned/plan_cursor.h"
#include "memoir/heap/planned/planned_layout.h"

namespace memoir {

class PlannedHeap final : public Heap {
 public:
  struct Counters {               // since begin_pass()
    std::uint64_t planned = 0;    // served at their planned offset
    std::uint64_t escaping = 0;   // matched an allocation that the recording left out of the plan
    std::uint64_t unmatched = 0;  // no recorded allocation fits
    std::uint64_t occupied = 0;   // matched, but the planned range was not free
    std::uint64_t smaller = 0;    // matched, and asked for less than planned; see Fit
  };

  /// Follows `layout`, which the caller keeps alive and whose ok() holds. Starts at the beginning of a pass.
  explicit PlannedHeap(const PlannedLayout& layout) noexcept;

  /// False when there was no metadata memory; then every request gets kNoOffset.
  bool ok() const noexcept { return ok_; }

  /// Back to the start of the recording, or to its entry `at`. Objects that are still live stay live, and
  /// their ranges taken.
  void begin_pass(std::uint32_t at = 0) noexcept;
  /// True while every request of this pass was the next one of the recording and found its range free.
  bool in_step() const noexcept { return cursor_.in_step(); }
  /// The entry of the recording that is expected next.
  std::uint32_t place() const noexcept { return cursor_.place(); }
  /// True when nothing of the recording is left to come.
  bool at_end() const noexcept { return cursor_.at_end(); }
  const Counters& counters() const noexcept { return counters_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override { return release(offset) != PlannedLayout::kNone; }
  /// free(), which tells what entry of the layout it was; PlannedLayout::kNone: nothing lives there.
  std::uint32_t release(Offset offset) noexcept;
  Size size_of(Offset offset) const noexcept override;
  Size live() const noexcept override { return live_; }
  /// Objects live now.
  size_t live_objects() const noexcept { return live_objects_; }
  /// Calls visit(entry) for what each of them is in the layout, by ascending offset.
  template <class Visit>
  void for_each_live(Visit visit) const {
    for (const std::uint32_t index : object_at_) {
      if (index != PlannedLayout::kNone) visit(layout_->entries()[index]);
    }
  }
  /// Which entry of the layout the object is that allocate() gave last.
  std::uint32_t last_entry() const noexcept { return last_; }

 private:
  using Entry = PlannedLayout::Entry;

  Offset place(const Request& request, std::uint32_t index) noexcept;
  std::uint32_t entry_at(Offset offset) const noexcept {
    const std::uint32_t start = ok_ ? layout_->start_at(offset) : PlannedLayout::kNone;
    return start == PlannedLayout::kNone ? start : object_at_[start];
  }
  bool range_is_free(const Entry& entry) const noexcept;
  void flip_range(const Entry& entry) noexcept;

  const PlannedLayout* layout_;
  PlanCursor cursor_;
  MetadataArray<std::uint64_t> cell_live_;  // a bit per cell
  MetadataArray<std::uint32_t> object_at_;  // per start: the entry live there, or kNone
  bool ok_ = false;
  std::uint32_t last_ = 0;
  Size live_ = 0;
  size_t live_objects_ = 0;
  Counters counters_;
};

}  // namespace memoir
