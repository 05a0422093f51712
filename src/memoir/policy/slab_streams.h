// SPDX-License-Identifier: Apache-2.0
//
// A slab that several streams use: before one of them gets bytes that another used last, it has to wait for
// that.
//
//   cells of the layout      | 0  | 1  | 2  | 3 ...
//   used by the plan's       | s0 | s0 | both    | s1     only objects that touch what both use are looked at
//   last use                           | s1, moment 7
//
// Not thread-safe.
#pragma once

#include <vector>

#include "memoir/heap/planned/planned_layout.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

class SlabStreams {
 public:
  /// For a layout whose entries have 1 + their stream as their site; both are kept alive by the caller. The
  /// slab's memory is ordered before `owner` only, so far. Throws std::bad_alloc.
  SlabStreams(const PlannedLayout& layout, StreamOrder* order, StreamId owner);

  /// Makes all streams of the plan wait for what is queued on the owner by now. False when one of them
  /// cannot.
  bool open() noexcept;
  /// Makes the owner wait for all streams of the plan.
  bool close() noexcept;

  /// True when some bytes are used by more than one stream.
  bool any() const noexcept { return !shared_.empty(); }
  /// Entry `index` begins to live: its stream waits for whoever used the bytes. False when it cannot.
  bool begin(std::uint32_t index) noexcept;
  /// It ends.
  void end(std::uint32_t index) noexcept;

 private:
  struct Use {
    StreamId stream = 0;
    Tick moment = 0;  // 0: nobody used it yet
  };

  static StreamId stream_of(const PlannedLayout::Entry& entry) noexcept {
    return static_cast<StreamId>(entry.site - 1);
  }

  const PlannedLayout& layout_;
  StreamOrder* order_;
  StreamId owner_;
  std::vector<StreamId> others_;  // streams of the plan that are not the owner
  std::vector<bool> shared_;      // per entry: touches cells that others use too; empty when none does
  std::vector<Use> uses_;         // per cell; empty when none is shared
};

}  // namespace memoir
