// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/planned/free_room.h"

#include <algorithm>
#include <utility>

namespace memoir {

namespace {

// Gaps to look at for one guest, some 10 us: in a pass that differs much, all of what is to come, for each
// guest and each gap, would take longer than malloc does.
constexpr size_t kMostLooks = 16'384;

}  // namespace

void FreeRoom::begin(Size size, Size alignment) noexcept {
  size_ = size;
  alignment_ = alignment;
  gaps_.clear();
}

void FreeRoom::add(Offset begin, Offset end) noexcept {
  if (begin < end && fits(begin, end)) gaps_.push_back({begin, end - begin});  // no memory: one gap less
}

/// False, and nothing is changed, when no gap is left without these bytes.
bool FreeRoom::take(const Range& taken) noexcept {
  if (std::none_of(gaps_.begin(), gaps_.end(), [&](const Range& gap) { return gap.overlaps(taken); }))
    return true;
  rest_.clear();
  for (const Range& gap : gaps_) {
    if (!gap.overlaps(taken)) {
      rest_.push_back(gap);
      continue;
    }
    if (gap.begin < taken.begin && fits(gap.begin, taken.begin))
      rest_.push_back({gap.begin, taken.begin - gap.begin});
    if (taken.end() < gap.end() && fits(taken.end(), gap.end()))
      rest_.push_back({taken.end(), gap.end() - taken.end()});
  }
  if (rest_.empty()) return false;
  std::swap(gaps_, rest_);
  return true;
}

Offset FreeRoom::choose(std::span<const PlannedLayout::Entry> to_come) noexcept {
  if (gaps_.empty()) return kNoOffset;
  size_t looks = 0;
  for (const PlannedLayout::Entry& entry : to_come) {
    looks += gaps_.size();
    if (looks > kMostLooks) break;
    if (entry.offset != kNoOffset && !take({entry.offset, entry.size})) break;
  }
  const Range* const smallest = std::min_element(
      gaps_.begin(), gaps_.end(), [](const Range& a, const Range& b) { return a.size < b.size; });
  return align_up(smallest->begin, alignment_);
}

}  // namespace memoir
