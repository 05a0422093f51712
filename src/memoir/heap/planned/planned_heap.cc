// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/planned/planned_heap.h"

#include <algorithm>

namespace memoir {

namespace {

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

PlannedHeap::PlannedHeap(const PlannedLayout& layout) noexcept : layout_(&layout), cursor_(layout) {
  follow(layout);
}

void PlannedHeap::follow(const PlannedLayout& layout) noexcept {
  layout_ = &layout;
  cursor_.follow(layout);
  ok_ = cursor_.ok() && cell_live_.assign((layout.cells() + 63) / 64, 0) &&
        object_at_.assign(layout.starts(), PlannedLayout::kNone);
  live_ = 0;
  live_objects_ = guest_count_ = 0;
  room_ = 0;
  begin_pass();
}

void PlannedHeap::begin_pass(std::uint32_t at) noexcept {
  cursor_.begin_pass(at);
  counters_ = {};
}

Offset PlannedHeap::allocate(const Request& request) noexcept {
  if (!ok_ || request.size == 0 || !is_power_of_two(request.alignment)) return kNoOffset;
  const std::uint32_t index = cursor_.match(request);
  if (index == PlannedLayout::kNone) [[unlikely]] {
    ++counters_.unmatched;
    return invite(request);
  }
  return place(request, index);
}

Offset PlannedHeap::place(const Request& request, std::uint32_t index) noexcept {
  const Entry& entry = layout_->entries()[index];
  if (entry.size != request.size) [[unlikely]]
    ++counters_.smaller;
  if (entry.offset == kNoOffset) {
    ++counters_.escaping;
    return kNoOffset;
  }
  if (request.alignment > Size{1} << entry.alignment_log2 || !range_is_free(entry)) [[unlikely]] {
    ++counters_.occupied;
    cursor_.leave_step();
    return invite(request);
  }
  flip_range(entry);
  object_at_[entry.start] = index;
  last_ = index;
  live_ += entry.size;
  ++live_objects_;
  ++counters_.planned;
  return entry.offset;
}

std::uint32_t PlannedHeap::release(Offset offset) noexcept {
  const std::uint32_t start = ok_ ? layout_->start_at(offset) : PlannedLayout::kNone;
  if (start == PlannedLayout::kNone) return PlannedLayout::kNone;
  const std::uint32_t index = object_at_[start];
  if (index == PlannedLayout::kNone) return PlannedLayout::kNone;
  const Entry& entry = layout_->entries()[index];
  object_at_[start] = PlannedLayout::kNone;
  flip_range(entry);
  live_ -= entry.size;
  --live_objects_;
  return index;
}

void PlannedHeap::take_guests(Size room, Size least) noexcept {
  room_ = room;
  least_guest_ = least;
}

Offset PlannedHeap::invite(const Request& request) noexcept {
  if (request.size < least_guest_ || room_ == 0 || guest_count_ == kMostGuests || request.site == kNoSite ||
      layout_->escapes(request.site)) {
    return kNoOffset;
  }
  free_room_.begin(request.size, request.alignment);
  Offset from = 0;
  for_each_live_range([&](const Range& object) {
    free_room_.add(from, object.begin);
    from = object.end();
  });
  free_room_.add(from, room_);
  const Offset offset = free_room_.choose(layout_->entries().subspan(cursor_.place()));
  if (offset == kNoOffset) return kNoOffset;
  Range* const end = guests_.data() + guest_count_++;
  Range* const at = std::find_if(guests_.data(), end, [&](const Range& one) { return one.begin > offset; });
  std::move_backward(at, end, end + 1);
  *at = {offset, request.size};
  live_ += request.size;
  ++live_objects_;
  ++counters_.guests;
  return offset;
}

bool PlannedHeap::release_guest(Offset offset) noexcept {
  Range* const end = guests_.data() + guest_count_;
  Range* const at = std::find_if(guests_.data(), end, [&](const Range& one) { return one.begin == offset; });
  if (at == end) return false;
  live_ -= at->size;
  --live_objects_;
  std::move(at + 1, end, at);
  --guest_count_;
  return true;
}

Size PlannedHeap::size_of(Offset offset) const noexcept {
  const std::uint32_t index = entry_at(offset);
  if (index != PlannedLayout::kNone) return layout_->entries()[index].size;
  for (const Range& guest : guests()) {
    if (guest.begin == offset) return guest.size;
  }
  return 0;
}

bool PlannedHeap::range_is_free(const Entry& entry) const noexcept {
  for (const Range& guest : guests()) {
    if (guest.overlaps({entry.offset, entry.size})) return false;
  }
  return each_word(entry.first_cell, entry.end_cell,
                   [this](std::uint32_t word, std::uint64_t mask) { return (cell_live_[word] & mask) == 0; });
}

void PlannedHeap::flip_range(const Entry& entry) noexcept {
  each_word(entry.first_cell, entry.end_cell, [this](std::uint32_t word, std::uint64_t mask) {
    cell_live_[word] ^= mask;
    return true;
  });
}

}  // namespace memoir
