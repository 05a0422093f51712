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
// in step only; see in_step(). Requests that the plan has no place for may be guests (take_guests()): they
// get room that is free and that the plan needs last (free_room.h).
#pragma once

#include <array>
#include <span>

#include "memoir/heap/heap.h"
#include "memoir/heap/planned/free_room.h"
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
    std::uint64_t smaller = 0;    // matched, and asked for less than planned; see PlannedFit
    std::uint64_t guests = 0;     // of unmatched and occupied: served all the same
  };
  static constexpr size_t kMostGuests = 64;             // live at one time
  static constexpr Size kLeastGuest = Size{16} * kKiB;  // less is not worth the search for room

  /// Follows `layout`, which the caller keeps alive and whose ok() holds. Starts at the beginning of a pass.
  explicit PlannedHeap(const PlannedLayout& layout) noexcept;

  /// The same for another layout, in the metadata memory that is there. Nothing is live.
  void follow(const PlannedLayout& layout) noexcept;

  /// False when there was no metadata memory; then every request gets kNoOffset.
  bool ok() const noexcept { return ok_; }

  /// Back to the start of the recording, or to its entry `at`. Objects that are still live stay live, and
  /// their ranges taken.
  void begin_pass(std::uint32_t at = 0) noexcept;
  /// From here on requests of `least` bytes and more that the plan has no place for are served from the free
  /// bytes below `room`, which the caller has memory for; but not those of sites whose objects are known to
  /// outlive their pass.
  void take_guests(Size room, Size least = kLeastGuest) noexcept;
  /// True while every request of this pass was the next one of the recording and found its range free.
  bool in_step() const noexcept { return cursor_.in_step(); }
  /// The entry of the recording that is expected next.
  std::uint32_t place() const noexcept { return cursor_.place(); }
  /// True when nothing of the recording is left to come.
  bool at_end() const noexcept { return cursor_.at_end(); }
  const Counters& counters() const noexcept { return counters_; }

  Offset allocate(const Request& request) noexcept override;
  bool free(Offset offset) noexcept override {
    return release(offset) != PlannedLayout::kNone || release_guest(offset);
  }
  /// free() of an object that the plan has, which tells what entry of the layout it was;
  /// PlannedLayout::kNone: none lives there.
  std::uint32_t release(Offset offset) noexcept;
  Size size_of(Offset offset) const noexcept override;
  Size live() const noexcept override { return live_; }
  /// Objects live now.
  size_t live_objects() const noexcept { return live_objects_; }
  /// Those of them that the plan does not have, by ascending offset.
  std::span<const Range> guests() const noexcept { return {guests_.data(), guest_count_}; }
  /// Calls visit(entry) for what each of the others is in the layout, by ascending offset.
  template <class Visit>
  void for_each_live(Visit visit) const {
    for (const std::uint32_t index : object_at_) {
      if (index != PlannedLayout::kNone) visit(layout_->entries()[index]);
    }
  }
  /// Calls visit(range) for where each live object lies, by ascending offset.
  template <class Visit>
  void for_each_live_range(Visit visit) const {
    const Range* guest = guests_.data();
    const Range* const last = guest + guest_count_;
    for_each_live([&](const PlannedLayout::Entry& entry) {
      while (guest != last && guest->begin < entry.offset) visit(*guest++);
      visit(Range{entry.offset, entry.size});
    });
    while (guest != last) visit(*guest++);
  }
  /// Where the last live object ends, or 0.
  Offset end_of_live() const noexcept {
    Offset end = 0;
    for_each_live_range([&](const Range& object) { end = object.end() > end ? object.end() : end; });
    return end;
  }
  /// Which entry of the layout the object is that allocate() gave last; not of a guest.
  std::uint32_t last_entry() const noexcept { return last_; }

 private:
  using Entry = PlannedLayout::Entry;

  Offset place(const Request& request, std::uint32_t index) noexcept;
  std::uint32_t entry_at(Offset offset) const noexcept {
    const std::uint32_t start = ok_ ? layout_->start_at(offset) : PlannedLayout::kNone;
    return start == PlannedLayout::kNone ? start : object_at_[start];
  }
  Offset invite(const Request& request) noexcept;
  bool release_guest(Offset offset) noexcept;
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
  Size room_ = 0, least_guest_ = 0;  // room_ 0: no guests
  FreeRoom free_room_;
  size_t guest_count_ = 0;
  std::array<Range, kMostGuests> guests_;  // the first guest_count_, ascending
};

}  // namespace memoir
