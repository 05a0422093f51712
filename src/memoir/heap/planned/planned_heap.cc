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
  ok_ = cursor_.ok() && cell_live_.assign((layout.cells() + 63) / 64, 0) &&
        object_at_.assign(layout.starts(), PlannedLayout::kNone);
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
    return kNoOffset;
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
    return kNoOffset;
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

Size PlannedHeap::size_of(Offset offset) const noexcept {
  const std::uint32_t index = entry_at(offset);
  return index == PlannedLayout::kNone ? 0 : layout_->entries()[index].size;
}

bool PlannedHeap::range_is_free(const Entry& entry) const noexcept {
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
