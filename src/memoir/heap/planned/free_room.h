// SPDX-License-Identifier: Apache-2.0
//
// Room for a guest: an object that the plan does not have, in bytes of its arena that nothing lives in now
// and that the plan needs last.
//
//   offset   0      64     128    192    256
//   live     |  a   |      |  b   |      |        gaps [64, 128) and [192, 256)
//   to come         |  c   |              then |  d  | at 192
//   guest of 64                   |  g   |        c comes first: the other gap is the better one
//
// (Belady 1966: what is needed last is the best to lend.) In metadata memory; not thread-safe.
#pragma once

#include <span>

#include "memoir/heap/planned/planned_layout.h"

namespace memoir {

class FreeRoom {
 public:
  /// Begins a search for `size` bytes at an alignment: there are no gaps.
  void begin(Size size, Size alignment) noexcept;
  /// A gap, in which nothing lives; gaps do not overlap.
  void add(Offset begin, Offset end) noexcept;
  /// The offset in the gap that none of the `to_come` takes, in their order, or that is taken last; kNoOffset
  /// when no gap is large enough. Looks ahead as far as a bound of work allows.
  Offset choose(std::span<const PlannedLayout::Entry> to_come) noexcept;

 private:
  bool fits(Offset begin, Offset end) const noexcept {
    const Offset first = align_up(begin, alignment_);
    return first < end && end - first >= size_;
  }
  bool take(const Range& taken) noexcept;

  Size size_ = 0, alignment_ = 1;
  MetadataArray<Range> gaps_, rest_;  // each has room for the guest
};

}  // namespace memoir
