// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/planned/planned_layout.h"

#include <algorithm>
#include <bit>

namespace memoir {

PlannedLayout::PlannedLayout(const RecordedPlan& plan, PlannedFit fit, bool takes_guests) noexcept
    : fit_(fit) {
  build_again(plan, fit, takes_guests);
}

void PlannedLayout::build_again(const RecordedPlan& plan, PlannedFit fit, bool takes_guests) noexcept {
  arena_size_ = plan.arena_size;
  fit_ = fit;
  takes_guests_ = takes_guests;
  entries_.clear();
  by_site_.clear();
  start_offsets_.clear();
  cuts_.clear();
  ok_ = build(plan) && index_starts();
}

bool PlannedLayout::build(const RecordedPlan& plan) noexcept {
  const size_t count = plan.sequence.size();
  if (count >= kNone / 2 || !entries_.reserve(count) || !by_site_.reserve(count) ||
      !cuts_.reserve(2 * count) || !start_offsets_.reserve(count)) {
    return false;
  }
  for (const PlannedAllocation& recorded : plan.sequence) {
    if (!is_power_of_two(recorded.alignment)) return false;
    entries_.push_back({.size = recorded.size,
                        .site = recorded.site,
                        .offset = recorded.offset,
                        .alignment_log2 = static_cast<std::uint32_t>(std::countr_zero(recorded.alignment))});
    if (recorded.offset == kNoOffset) continue;
    if (recorded.size == 0 || recorded.size > arena_size_ || recorded.offset > arena_size_ - recorded.size)
      return false;
    cuts_.push_back(recorded.offset);
    cuts_.push_back(recorded.offset + recorded.size);
    start_offsets_.push_back(recorded.offset);
  }
  std::sort(cuts_.begin(), cuts_.end());
  const auto* const cuts_end = std::unique(cuts_.begin(), cuts_.end());
  std::sort(start_offsets_.begin(), start_offsets_.end());
  start_offsets_.resize_down(static_cast<size_t>(std::unique(start_offsets_.begin(), start_offsets_.end()) -
                                                 start_offsets_.begin()));
  const auto index_in = [](const Offset* begin, const Offset* end, Offset value) {
    return static_cast<std::uint32_t>(std::lower_bound(begin, end, value) - begin);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    Entry& entry = entries_[i];
    by_site_.push_back(i);
    if (entry.offset == kNoOffset) continue;
    entry.first_cell = index_in(cuts_.begin(), cuts_end, entry.offset);
    entry.end_cell = index_in(cuts_.begin(), cuts_end, entry.offset + entry.size);
    entry.start = index_in(start_offsets_.begin(), start_offsets_.end(), entry.offset);
  }
  cells_ = static_cast<size_t>(cuts_end - cuts_.begin());
  std::sort(by_site_.begin(), by_site_.end(), [this](std::uint32_t a, std::uint32_t b) {
    const Entry &x = entries_[a], &y = entries_[b];
    return x.site != y.site ? x.site < y.site : x.size != y.size ? x.size < y.size : a < b;
  });
  return true;
}

bool PlannedLayout::index_starts() noexcept {
  const size_t capacity = std::bit_ceil(std::max<size_t>(2 * start_offsets_.size(), 16));
  lookup_shift_ = 64 - std::countr_zero(capacity);
  if (!lookup_.assign(capacity, kNone)) return false;
  for (std::uint32_t start = 0; start < start_offsets_.size(); ++start) {
    size_t at = slot_of(start_offsets_[start]);
    while (lookup_[at] != kNone) at = (at + 1) & (capacity - 1);
    lookup_[at] = start;
  }
  return true;
}

bool PlannedLayout::escapes(SiteId site) const noexcept {
  const auto* at = std::partition_point(by_site_.begin(), by_site_.end(),
                                        [&](std::uint32_t index) { return entries_[index].site < site; });
  for (; at != by_site_.end() && entries_[*at].site == site; ++at) {
    if (entries_[*at].offset == kNoOffset) return true;
  }
  return false;
}

std::span<const std::uint32_t> PlannedLayout::occurrences(SiteId site, Size size) const noexcept {
  const auto key = [this](std::uint32_t index) {
    return std::pair{entries_[index].site, entries_[index].size};
  };
  const std::pair wanted{site, size};
  const auto* const begin = std::partition_point(by_site_.begin(), by_site_.end(),
                                                 [&](std::uint32_t index) { return key(index) < wanted; });
  const auto* const end =
      std::partition_point(begin, by_site_.end(), [&](std::uint32_t index) { return key(index) == wanted; });
  return {begin, end};
}

}  // namespace memoir
