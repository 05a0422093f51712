// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/planned_heap.h"

#include <algorithm>

namespace memoir {

namespace {

constexpr std::uint32_t kNear = 32;     // entries: a skipped operator and what it holds are within this
constexpr std::uint32_t kPatience = 3;  // requests that find nothing near before a far match is believed

constexpr std::uint64_t low_bits(std::uint32_t count) noexcept {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

/// Calls visit(word, mask) for the words that hold bits [begin, end), begin < end, until it returns false.
template <class Visit>
bool each_word(std::uint32_t begin, std::uint32_t end, Visit visit) noexcept {
  const std::uint32_t first = begin / 64, last = (end - 1) / 64;
  const std::uint64_t head = ~low_bits(begin % 64), tail = low_bits((end - 1) % 64 + 1);
  if (first == last) return visit(first, head & tail);
  if (!visit(first, head)) return false;
  for (std::uint32_t word = first + 1; word < last; ++word) {
    if (!visit(word, ~std::uint64_t{0})) return false;
  }
  return visit(last, tail);
}

}  // namespace

PlannedHeap::PlannedHeap(const PlannedLayout& layout) noexcept : layout_(&layout) {
  ok_ = segment_live_.assign((layout.segments() + 63) / 64, 0) &&
        object_at_.assign(layout.starts(), PlannedLayout::kNone) &&
        used_.assign((layout.entries().size() + 63) / 64, 0);
}

void PlannedHeap::begin_pass() noexcept {
  next_ = 0;
  misses_ = 0;
  in_step_ = true;
  counters_ = {};
}

Offset PlannedHeap::allocate(const Request& request) noexcept {
  if (!ok_ || request.size == 0 || !is_power_of_two(request.alignment)) return kNoOffset;
  const auto entries = layout_->entries();
  if (in_step_) [[likely]] {
    if (next_ < entries.size()) [[likely]] {
      const Entry& entry = entries[next_];
      if (entry.size == request.size && (request.site == kNoSite || request.site == entry.site)) [[likely]] {
        return place(request, next_++);
      }
    }
    leave_step();
  }
  const std::uint32_t index = find_out_of_step(request);
  if (index == PlannedLayout::kNone) {
    ++counters_.unmatched;
    return kNoOffset;
  }
  used_[index / 64] |= std::uint64_t{1} << (index % 64);
  next_ = index + 1;
  misses_ = 0;
  return place(request, index);
}

Offset PlannedHeap::place(const Request& request, std::uint32_t index) noexcept {
  const Entry& entry = layout_->entries()[index];
  if (entry.offset == kNoOffset) {
    ++counters_.escaping;
    return kNoOffset;
  }
  if (request.alignment > Size{1} << entry.alignment_log2 || !range_is_free(entry)) [[unlikely]] {
    ++counters_.occupied;
    if (in_step_) leave_step();
    return kNoOffset;
  }
  flip_range(entry);
  object_at_[entry.start] = index;
  live_ += entry.size;
  ++live_objects_;
  ++counters_.planned;
  return entry.offset;
}

bool PlannedHeap::free(Offset offset) noexcept {
  const std::uint32_t start = ok_ ? layout_->start_at(offset) : PlannedLayout::kNone;
  if (start == PlannedLayout::kNone) return false;
  const std::uint32_t index = object_at_[start];
  if (index == PlannedLayout::kNone) return false;
  const Entry& entry = layout_->entries()[index];
  object_at_[start] = PlannedLayout::kNone;
  flip_range(entry);
  live_ -= entry.size;
  --live_objects_;
  return true;
}

Size PlannedHeap::size_of(Offset offset) const noexcept {
  const std::uint32_t start = ok_ ? layout_->start_at(offset) : PlannedLayout::kNone;
  if (start == PlannedLayout::kNone || object_at_[start] == PlannedLayout::kNone) return 0;
  return layout_->entries()[object_at_[start]].size;
}

bool PlannedHeap::range_is_free(const Entry& entry) const noexcept {
  return each_word(entry.first_segment, entry.end_segment, [this](std::uint32_t word, std::uint64_t mask) {
    return (segment_live_[word] & mask) == 0;
  });
}

void PlannedHeap::flip_range(const Entry& entry) noexcept {
  each_word(entry.first_segment, entry.end_segment, [this](std::uint32_t word, std::uint64_t mask) {
    segment_live_[word] ^= mask;
    return true;
  });
}

void PlannedHeap::leave_step() noexcept {
  // Everything before the place was matched in order; from here on each match is remembered by itself.
  in_step_ = false;
  std::fill(used_.begin(), used_.end(), 0);
  if (next_ > 0) {
    each_word(0, next_, [this](std::uint32_t word, std::uint64_t mask) {
      used_[word] |= mask;
      return true;
    });
  }
}

std::uint32_t PlannedHeap::find_out_of_step(const Request& request) noexcept {
  if (request.site == kNoSite) return PlannedLayout::kNone;
  const auto candidates = layout_->occurrences(request.site, request.size);
  const auto* ahead = std::lower_bound(candidates.data(), candidates.data() + candidates.size(), next_);
  const auto* const end = candidates.data() + candidates.size();
  const auto* behind = ahead;
  std::uint32_t best = PlannedLayout::kNone, distance = PlannedLayout::kNone;
  while (ahead != end && is_used(*ahead)) ++ahead;
  if (ahead != end) {
    best = *ahead;
    distance = *ahead - next_;
  }
  while (behind != candidates.data() && next_ - behind[-1] < distance) {
    --behind;
    if (is_used(*behind)) continue;
    best = *behind;
    distance = next_ - *behind;
    break;
  }
  if (distance > kNear && ++misses_ < kPatience) return PlannedLayout::kNone;
  return best;
}

}  // namespace memoir
