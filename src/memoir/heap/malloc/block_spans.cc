// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/malloc/block_spans.h"

#include <algorithm>
#include <bit>

namespace memoir {

using size_classes::kSlot;
using size_classes::kTables;

namespace {

/// The pages that bytes [begin, begin + size) of a span touch.
std::uint64_t pages_of(Size begin, Size size) noexcept {
  const Size low = begin / BlockSpans::kPage, high = (begin + size - 1) / BlockSpans::kPage;
  return (~std::uint64_t{0} >> (63 - (high - low))) << low;
}

}  // namespace

Offset BlockSpans::allocate(std::uint32_t owner, size_t size_class) noexcept {
  const size_t local = owner * size_classes::kCount + size_class;
  starved_ = false;
  if (local >= locals_.size()) return kNoOffset;
  Index& current = locals_[local].current;
  while (current == 0 || (spans_[current].free == 0 && !refill(spans_[current]))) {
    if (starved_) return kNoOffset;
    if (current != 0) set_full(current);
    current = locals_[local].available;
    if (current == 0) return kNoOffset;
    unlink(current);
    spans_[current].state = State::kCurrent;
    spans_[current].notify = kNever;
  }
  Span& span = spans_[current];
  const size_t block = span.free - 1u;
  span.free = span.link[block];
  ++span.used;
  return span.begin + block * kTables.size[size_class];
}

bool BlockSpans::add_span(std::uint32_t owner, size_t size_class, Offset begin) noexcept {
  const size_t local = owner * size_classes::kCount + size_class;
  const size_t slots = kTables.slots[size_class], first = begin / kSlot;
  if (!locals_.reserve(local + 1)) return false;
  for (size_t part = first / kPart; part <= (first + slots - 1) / kPart; ++part) {
    if (parts_.find(part) != 0) continue;
    const size_t size = by_slot_.size() + kPart;
    if (!parts_.reserve_one() || !by_slot_.reserve(std::bit_ceil(size))) return false;
    while (by_slot_.size() < size) by_slot_.push_back(0);
    parts_.insert(part, static_cast<Index>(by_slot_.size() / kPart));
  }
  if (spans_.empty() && !spans_.push_back({})) return false;
  if (unused_.empty() && (!unused_.reserve(spans_.size() + 1) || !spans_.reserve(spans_.size() + 1)))
    return false;
  while (locals_.size() <= local) locals_.push_back({});
  auto index = static_cast<Index>(spans_.size());
  if (unused_.empty()) {
    spans_.push_back({});
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  Span& span = spans_[index];
  span = {};
  span.begin = begin;
  span.local = static_cast<std::uint32_t>(local);
  span.blocks = kTables.blocks[size_class];
  span.size_class = static_cast<std::uint8_t>(size_class);
  set_slots(first, slots, index);
  set_available(index);
  return true;
}

/// Their parts are there.
void BlockSpans::set_slots(size_t first, size_t count, Index index) noexcept {
  for (size_t slot = first; slot < first + count; ++slot)
    by_slot_[(parts_.find(slot / kPart) - 1) * kPart + slot % kPart] = index;
}

bool BlockSpans::refill(Span& span) noexcept {
  if (span.local_free != 0) {
    span.free = span.local_free;
    span.local_free = 0;
    return true;
  }
  const Size size = kTables.size[span.size_class];
  while (span.gone != 0) {
    const auto page = static_cast<Size>(std::countr_zero(span.gone));
    if (!pages_->bring_back({span.begin + page * kPage, kPage})) {
      starved_ = true;
      return false;
    }
    span.gone &= span.gone - 1;
    if (span.linked == 0) continue;
    // Blocks on this page that lie on no other gone page are listed again.
    const Size last = std::min<Size>((page * kPage + kPage - 1) / size, span.linked - Size{1});
    for (Size block = last + 1; block-- > page * kPage / size;) {
      if ((pages_of(block * size, size) & span.gone) != 0) continue;
      span.link[block] = span.free;
      span.free = static_cast<std::uint16_t>(block + 1);
    }
    if (span.free != 0) return true;
  }
  const size_t count = std::min<size_t>(std::max<Size>(kPage / size, 1), span.blocks - span.linked);
  if (count == 0) return false;
  for (size_t block = span.linked + count; block-- > span.linked;) {
    span.link[block] = span.free;
    span.free = static_cast<std::uint16_t>(block + 1);
  }
  span.linked = static_cast<std::uint16_t>(span.linked + count);
  return true;
}

Range BlockSpans::free(Offset offset) noexcept {
  const Index index = index_at(offset / kSlot);
  Span& span = spans_[index];
  const size_t block = (offset - span.begin) / kTables.size[span.size_class];
  span.link[block] = span.local_free;
  span.local_free = static_cast<std::uint16_t>(block + 1);
  if (--span.used != span.notify) return {};
  if (span.state == State::kFull) set_available(index);
  const bool last_one = span.next == 0 && span.previous == 0;
  return span.used == 0 && !last_one ? end(index) : Range{};
}

void BlockSpans::set_full(Index index) noexcept {
  Span& span = spans_[index];
  span.state = State::kFull;
  span.notify = static_cast<std::uint16_t>(span.blocks - std::max(1, span.blocks / 8));
  if (span.used <= span.notify) set_available(index);
}

void BlockSpans::set_available(Index index) noexcept {
  Span& span = spans_[index];
  span.state = State::kAvailable;
  span.notify = 0;
  Index& first = locals_[span.local].available;
  span.previous = 0;
  span.next = first;
  if (first != 0) spans_[first].previous = index;
  first = index;
}

void BlockSpans::unlink(Index index) noexcept {
  Span& span = spans_[index];
  (span.previous != 0 ? spans_[span.previous].next : locals_[span.local].available) = span.next;
  if (span.next != 0) spans_[span.next].previous = span.previous;
  span.next = span.previous = 0;
}

Range BlockSpans::end(Index index) noexcept {
  Span& span = spans_[index];
  if (span.state == State::kAvailable) unlink(index);
  const size_t slots = kTables.slots[span.size_class];
  set_slots(span.begin / kSlot, slots, 0);
  span.state = State::kUnused;
  unused_.push_back(index);
  return {span.begin, slots * kSlot};
}

Range BlockSpans::end_if_empty(size_t slot) noexcept {
  const Index index = index_at(slot);
  if (index == 0 || spans_[index].used != 0 || spans_[index].state == State::kCurrent) return {};
  return end(index);
}

void BlockSpans::set_current_aside() noexcept {
  for (Local& local : locals_) {
    if (local.current == 0) continue;
    const Index index = local.current;
    local.current = 0;
    // What the free list has comes behind what was freed since.
    Span& span = spans_[index];
    std::uint16_t* last = &span.local_free;
    while (*last != 0) last = &span.link[*last - 1];
    *last = span.free;
    span.free = 0;
    set_available(index);
  }
}

BlockSpans::View BlockSpans::view(size_t slot) const noexcept {
  const Index index = index_at(slot);
  if (index == 0 || spans_[index].begin != slot * kSlot) return {};
  const Span& span = spans_[index];
  return {{span.begin, kTables.slots[span.size_class] * kSlot},
          span.used,
          span.blocks,
          kTables.size[span.size_class],
          span.seen,
          span.stripped,
          span.state == State::kCurrent};
}

void BlockSpans::look(size_t slot, bool stripped) noexcept {
  Span& span = spans_[index_at(slot)];
  span.seen = span.used;
  span.stripped = stripped;
}

std::uint64_t BlockSpans::strip(size_t slot, std::uint64_t absent) noexcept {
  Span& span = spans_[index_at(slot)];
  if (span.state == State::kCurrent) return 0;
  const Size size = kTables.size[span.size_class];
  std::uint64_t is_free[kMostBlocks / 64] = {};
  for (const std::uint16_t first : {span.free, span.local_free}) {
    for (size_t next = first; next != 0; next = span.link[next - 1])
      is_free[(next - 1) / 64] |= std::uint64_t{1} << ((next - 1) % 64);
  }
  const auto listed = [&](size_t block) { return (is_free[block / 64] >> (block % 64) & 1) != 0; };
  std::uint64_t touched = 0;  // by blocks that are used
  for (size_t block = 0; block < span.linked; ++block) {
    const std::uint64_t pages = pages_of(block * size, size);
    if (!listed(block) && (pages & span.gone) == 0) touched |= pages;
  }
  const std::uint64_t all = pages_of(0, kTables.slots[span.size_class] * kSlot);
  const std::uint64_t leaving = all & ~touched & ~absent;
  if (leaving == 0) return 0;
  span.gone |= leaving;
  span.free = span.local_free = 0;
  for (size_t block = span.linked; block-- > 0;) {
    if (!listed(block) || (pages_of(block * size, size) & span.gone) != 0) continue;
    span.link[block] = span.local_free;
    span.local_free = static_cast<std::uint16_t>(block + 1);
  }
  return leaving;
}

}  // namespace memoir
