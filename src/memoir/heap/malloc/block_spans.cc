// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/malloc/block_spans.h"

#include <algorithm>
#include <bit>

namespace memoir {

using size_classes::kSlot;
using size_classes::kTables;

bool BlockSpans::prepare(std::uint32_t owner, size_t size_class) noexcept {
  const size_t local = owner * size_classes::kCount + size_class;
  starved_ = false;
  if (local >= locals_.size()) return false;
  Index& current = locals_[local].current;
  while (current == 0 || (spans_[current].free == 0 && !refill(spans_[current]))) {
    if (starved_) return false;
    if (current != 0) set_full(current);
    if (owner != 0 && hears_of_frees(thread_of(owner))) drain_queue(thread_of(owner));
    current = locals_[local].available;
    if (current != 0) unlink(current);
    else current = take_kept(owner, size_class);
    if (current == 0) return false;
    spans_[current].state = State::kCurrent;
    spans_[current].notify = kNever;
  }
  return true;
}

Offset BlockSpans::take(std::uint32_t owner, size_t size_class) noexcept {
  Span& span = spans_[locals_[owner * size_classes::kCount + size_class].current];
  const size_t block = span.free - 1u;
  span.free = span.link[block];
  ++span.used;
  return span.begin + block * kTables.size[size_class];
}

bool BlockSpans::add_span(std::uint32_t owner, size_t size_class, Offset begin) noexcept {
  const size_t local = owner * size_classes::kCount + size_class;
  const size_t slots = kTables.slots[size_class], first = begin / kSlot;
  if (!locals_.reserve(local + 1) || !kept_.reserve(owner + 2)) return false;
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
  while (kept_.size() <= owner + 1) kept_.push_back({});
  auto index = static_cast<Index>(spans_.size());
  if (unused_.empty()) {
    spans_.push_back({});
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  Span& span = spans_[index];
  span.begin = begin;
  start(span, static_cast<std::uint32_t>(local), size_class);
  set_slots(first, slots, index);
  set_available(index);
  return true;
}

/// An empty span that was never cut, in no list. Its place is what it was.
void BlockSpans::start(Span& span, std::uint32_t local, size_t size_class) noexcept {
  const Offset begin = span.begin;
  span = {};
  span.begin = begin;
  span.local = local;
  span.blocks = kTables.blocks[size_class];
  span.size_class = static_cast<std::uint8_t>(size_class);
}

bool BlockSpans::keep(Index index) noexcept {
  Span& span = spans_[index];
  const std::uint32_t owner = owner_of(span);
  const std::uint32_t slots = kTables.slots[span.size_class];
  if (owner == 0 || slots > span_rules::kMostKeptSlots || span.gone != 0) return false;
  std::uint32_t& all = kept_[owner_of(thread_of(owner), 0)].slots;
  if ((all + slots) * kSlot > pages_->most_kept()) return false;
  all += slots;
  span.state = State::kKept;
  Index& first = kept_[owner].first[slots];
  span.previous = 0;
  span.next = first;
  if (first != 0) spans_[first].previous = index;
  first = index;
  return true;
}

void BlockSpans::unkeep(Index index) noexcept {
  Span& span = spans_[index];
  const std::uint32_t owner = owner_of(span), slots = kTables.slots[span.size_class];
  (span.previous != 0 ? spans_[span.previous].next : kept_[owner].first[slots]) = span.next;
  if (span.next != 0) spans_[span.next].previous = span.previous;
  span.next = span.previous = 0;
  kept_[owner_of(thread_of(owner), 0)].slots -= slots;
}

/// One that was cut for the class, if there is one among the first, else any of its length, cut anew.
BlockSpans::Index BlockSpans::take_kept(std::uint32_t owner, size_t size_class) noexcept {
  const size_t slots = kTables.slots[size_class];
  if (slots > span_rules::kMostKeptSlots || kept_[owner].first[slots] == 0) return 0;
  Index index = kept_[owner].first[slots];
  for (int look = 1; spans_[index].size_class != size_class && look < span_rules::kLooks; ++look) {
    if (spans_[index].next == 0) break;
    index = spans_[index].next;
  }
  if (spans_[index].size_class != size_class) index = kept_[owner].first[slots];
  unkeep(index);
  if (spans_[index].size_class != size_class)
    start(spans_[index], static_cast<std::uint32_t>(owner * size_classes::kCount + size_class), size_class);
  return index;
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
  if (span.remote_count != 0) {
    span.free = span.remote;
    span.used = static_cast<std::uint16_t>(span.used - span.remote_count);
    span.remote = span.remote_count = 0;
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
    const span_rules::Shape shape{kTables.slots[span.size_class] * kSlot, size, span.linked};
    span_rules::list_those_on(shape, page, span.gone, [&](Size block) {
      span.link[block] = span.free;
      span.free = static_cast<std::uint16_t>(block + 1);
    });
    if (span.free != 0) return true;
  }
  const size_t count = span_rules::blocks_to_list(size, span.blocks - span.linked);
  if (count == 0) return false;
  for (size_t block = span.linked + count; block-- > span.linked;) {
    span.link[block] = span.free;
    span.free = static_cast<std::uint16_t>(block + 1);
  }
  span.linked = static_cast<std::uint16_t>(span.linked + count);
  return true;
}

Range BlockSpans::free_own(Index index, Offset offset) noexcept {
  Span& span = spans_[index];
  const size_t block = (offset - span.begin) / kTables.size[span.size_class];
  std::uint16_t& list = owner_of(span) == 0 ? span.local_free : span.free;
  span.link[block] = list;
  list = static_cast<std::uint16_t>(block + 1);
  if (--span.used != span.notify) return {};
  if (span.state == State::kFull) set_available(index);
  const bool last_one = span.next == 0 && span.previous == 0;
  if (span.used != 0 || last_one || span.queued) return {};
  unlink(index);
  if (keep(index)) return {};
  span.state = State::kFull;  // in no list
  return end(index);
}

void BlockSpans::hold(Thread& thread, Index index, Offset offset) noexcept {
  Span& span = spans_[index];
  const Size size = kTables.size[span.size_class];
  const auto block = static_cast<std::uint16_t>((offset - span.begin) / size + 1);
  if (size >= span_rules::kHeldBytes) {
    span.link[block - 1] = 0;
    Held one{index, block, block, 1};
    return hand_over(one);
  }
  constexpr size_t kCrowd = 64;
  Held& held = thread.held[span_rules::held_place(span.begin / kSlot, threads_.size() >= kCrowd)];
  if (held.span != index) {
    hand_over(held);
    ++thread.slow_calls;
    if (thread.queue != 0) drain_queue(static_cast<std::uint32_t>(&thread - threads_.data()));
    thread.holds = true;
    span.link[block - 1] = 0;
    held = {index, block, block, 1};
    return;
  }
  span.link[block - 1] = held.first;
  held.first = block;
  if (span_rules::holds_enough(++held.count, size)) hand_over(held);
}

void BlockSpans::hand_over(Held& held) noexcept {
  if (held.count != 0) {
    Span& span = spans_[held.span];
    span.link[held.last - 1] = span.remote;
    span.remote = held.first;
    span.remote_count = static_cast<std::uint16_t>(span.remote_count + held.count);
    if (!span.queued && span.remote_count >= span_rules::blocks_to_tell(span.blocks)) {
      span.queued = true;
      Index& queue = threads_[thread_of(owner_of(span))].queue;
      span.queue_next = queue;
      queue = held.span;
    }
  }
  held = {};
}

void BlockSpans::flush_held(std::uint32_t thread) noexcept {
  if (!threads_[thread].holds) return;
  for (Held& held : threads_[thread].held) hand_over(held);
  threads_[thread].holds = false;
}

void BlockSpans::drain_queue(std::uint32_t thread) noexcept {
  Index next = threads_[thread].queue;
  threads_[thread].queue = 0;
  while (next != 0) {
    const Index index = next;
    Span& span = spans_[index];
    next = span.queue_next;
    span.queued = false;
    collect(index);
    if (span.state != State::kAvailable || span.used != 0) continue;
    const bool last_one = span.next == 0 && span.previous == 0;
    if (last_one) continue;
    unlink(index);
    if (keep(index)) continue;
    span.state = State::kFull;  // in no list
    pages_->ended(end(index));
  }
}

/// Takes in what others freed.
void BlockSpans::collect(Index index) noexcept {
  Span& span = spans_[index];
  if (span.remote_count != 0) {
    if (span.local_free == 0) span.local_free = span.remote;
    else if (span.free == 0) span.free = span.remote;
    else put_aside(span, span.remote);
    span.used = static_cast<std::uint16_t>(span.used - span.remote_count);
    span.remote = span.remote_count = 0;
  }
  if (span.state == State::kFull && span.used <= span.notify) set_available(index);
}

/// A list in front of what was put aside before.
void BlockSpans::put_aside(Span& span, std::uint16_t first) noexcept {
  if (first == 0) return;
  std::uint16_t* last = &span.link[first - 1];
  while (*last != 0) last = &span.link[*last - 1];
  *last = span.local_free;
  span.local_free = first;
}

void BlockSpans::set_full(Index index) noexcept {
  Span& span = spans_[index];
  span.state = State::kFull;
  span.notify = static_cast<std::uint16_t>(span.blocks - span_rules::blocks_to_offer(span.blocks));
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
  if (span.state == State::kKept) unkeep(index);
  const size_t slots = kTables.slots[span.size_class];
  set_slots(span.begin / kSlot, slots, 0);
  span.state = State::kUnused;
  unused_.push_back(index);
  return {span.begin, slots * kSlot};
}

Range BlockSpans::end_if_empty(size_t slot) noexcept {
  const Index index = index_at(slot);
  if (index == 0 || spans_[index].used != 0 || spans_[index].queued || spans_[index].state == State::kCurrent)
    return {};
  return end(index);
}

void BlockSpans::set_current_aside(size_t first, size_t end) noexcept {
  for (size_t local = first; local < std::min(end, locals_.size()); ++local) {
    const Index index = locals_[local].current;
    if (index == 0) continue;
    locals_[local].current = 0;
    Span& span = spans_[index];
    put_aside(span, span.free);
    span.free = 0;
    set_available(index);
  }
}

BlockSpans::View BlockSpans::view(size_t slot) const noexcept {
  const Index index = index_at(slot);
  if (index == 0 || spans_[index].begin != slot * kSlot) return {};
  const Span& span = spans_[index];
  return {{span.begin, kTables.slots[span.size_class] * kSlot},
          owner_of(span),
          span.used,
          span.blocks,
          span.remote_count,
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
  collect(index_at(slot));
  Span& span = spans_[index_at(slot)];
  if (span.state == State::kCurrent || span.state == State::kKept) return 0;
  const Size size = kTables.size[span.size_class];
  std::uint64_t is_free[kMostBlocks / 64] = {};
  for (const std::uint16_t first : {span.free, span.local_free}) {
    for (size_t next = first; next != 0; next = span.link[next - 1])
      is_free[(next - 1) / 64] |= std::uint64_t{1} << ((next - 1) % 64);
  }
  const auto listed = [&](size_t block) { return (is_free[block / 64] >> (block % 64) & 1) != 0; };
  const span_rules::Shape shape{kTables.slots[span.size_class] * kSlot, size, span.linked};
  const std::uint64_t leaving = span_rules::unused_pages(shape, span.gone, listed) & ~absent;
  if (leaving == 0) return 0;
  span.gone |= leaving;
  span.free = span.local_free = 0;
  span_rules::list_the_rest(shape, span.gone, listed, [&](size_t block) {
    span.link[block] = span.local_free;
    span.local_free = static_cast<std::uint16_t>(block + 1);
  });
  return leaving;
}

}  // namespace memoir
