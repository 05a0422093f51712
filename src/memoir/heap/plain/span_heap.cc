// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/plain/span_heap.h"

#include <algorithm>

namespace memoir {

namespace {

// Sizes are rounded up to their alignment, at most to this: then what follows an object is aligned as well,
// and few free spans are found too misaligned.
constexpr Size kLargestRounding = 64;
// free spans too misaligned that a request looks at before it asks for a surely large one
constexpr int kCandidates = 16;

/// Bytes between a span's begin and the first aligned offset in it.
Size padding(Offset begin, Size alignment) noexcept { return (alignment - begin % alignment) % alignment; }

bool fits(Range range, Size size, Size alignment) noexcept {
  const Size skipped = padding(range.begin, alignment);
  return skipped <= range.size && size <= range.size - skipped;
}

}  // namespace

SpanHeap::SpanHeap(Arena& arena) noexcept : arena_(&arena) {
  if (arena.capacity() == 0 || !spans_.push_back({})) return;
  const Index all = take_record();  // the first growth holds many: cannot fail
  spans_[all].range = {0, arena.capacity()};
  insert(free_root_, all);
}

Offset SpanHeap::allocate(const Request& request) noexcept {
  const Size alignment = request.alignment;
  if (request.size == 0 || !is_power_of_two(alignment) || request.size > arena_->capacity()) return kNoOffset;
  const Size size = align_up(request.size, std::min(alignment, kLargestRounding));
  Index index = find_free(size, alignment);
  if (index == 0 || !reserve_records()) return kNoOffset;  // from here on nothing may fail half-way
  const Size skipped = padding(spans_[index].range.begin, alignment);
  if (!commit(index, skipped, size)) {
    trim();  // a full machine: what is free elsewhere may do here
    if (!commit(index, skipped, size)) return kNoOffset;
  }
  erase(free_root_, index);
  if (skipped != 0) {
    const Index rest = split_span(index, skipped);
    insert(free_root_, index);
    index = rest;
  }
  if (spans_[index].range.size != size) insert(free_root_, split_span(index, size));
  Span& span = spans_[index];
  span.asked = request.size;
  span.committed = size;
  insert(live_root_, index);
  live_ += request.size;
  return span.range.begin;
}

bool SpanHeap::free(Offset offset) noexcept {
  Index index = find_live(offset);
  if (index == 0) return false;
  live_ -= spans_[index].asked;
  erase(live_root_, index);
  spans_[index].asked = 0;
  if (const Index after = spans_[index].after; after != 0 && !spans_[after].is_live()) {
    erase(free_root_, after);
    index = absorb_after(index);
  }
  if (const Index before = spans_[index].before; before != 0 && !spans_[before].is_live()) {
    erase(free_root_, before);
    index = absorb_after(before);
  }
  insert(free_root_, index);
  return true;
}

Size SpanHeap::size_of(Offset offset) const noexcept {
  return spans_.empty() ? 0 : spans_[find_live(offset)].range.size;
}

void SpanHeap::trim() noexcept {
  if (!ok()) return;
  Index first = free_root_ != 0 ? free_root_ : live_root_;
  while (spans_[first].before != 0) first = spans_[first].before;
  for (Index index = first; index != 0; index = spans_[index].after) {
    if (spans_[index].is_live()) continue;
    arena_->decommit(spans_[index].range);
    // a granule that a live neighbour shares stays, and is committed again for nothing
    spans_[index].committed = 0;
  }
}

Size SpanHeap::largest_free() const noexcept {
  return free_root_ == 0 ? 0 : spans_[Tree::last(spans_.data(), free_root_)].range.size;
}

// --- which span ---

SpanHeap::Index SpanHeap::find_free(Size size, Size alignment) const noexcept {
  Index index = lower_bound(free_root_, {size, 0});
  for (int i = 0; i < kCandidates && index != 0; ++i) {
    const Span& span = spans_[index];
    if (fits(span.range, size, alignment)) return index;
    index = lower_bound(free_root_, {span.range.size, span.range.begin + 1});
  }
  if (index == 0) return 0;
  const Index next = index;
  if (size <= ~Size{0} - alignment) {
    if (index = lower_bound(free_root_, {size + alignment - 1, 0}); index != 0) return index;
  }
  // Nearly full: rather slow than a refusal while there is room.
  for (index = next; index != 0 && !fits(spans_[index].range, size, alignment);) {
    index = lower_bound(free_root_, {spans_[index].range.size, spans_[index].range.begin + 1});
  }
  return index;
}

SpanHeap::Index SpanHeap::find_live(Offset offset) const noexcept {
  Index index = live_root_;
  while (index != 0 && spans_[index].range.begin != offset) {
    index = offset < spans_[index].range.begin ? spans_[index].left : spans_[index].right;
  }
  return index;
}

// --- spans in a row; none of them in a tree while they change ---

/// Cuts a span after `size` bytes and gives back the second part.
SpanHeap::Index SpanHeap::split_span(Index index, Size size) noexcept {
  const Index rest = take_record();
  Span& first = spans_[index];
  Span& second = spans_[rest];
  second.range = {first.range.begin + size, first.range.size - size};
  second.committed = first.committed > size ? first.committed - size : 0;
  second.before = index;
  second.after = first.after;
  if (first.after != 0) spans_[first.after].before = rest;
  first.range.size = size;
  first.committed = std::min(first.committed, size);
  first.after = rest;
  return rest;
}

/// Makes a span and the one after it one; gives it back.
SpanHeap::Index SpanHeap::absorb_after(Index index) noexcept {
  Span& first = spans_[index];
  const Index absorbed = first.after;
  Span& second = spans_[absorbed];
  if (first.committed == first.range.size) first.committed += second.committed;
  first.range.size += second.range.size;
  first.after = second.after;
  if (second.after != 0) spans_[second.after].before = index;
  second.after = unused_;
  unused_ = absorbed;
  return index;
}

/// Makes `size` bytes after the first `skipped` of a span usable.
bool SpanHeap::commit(Index index, Size skipped, Size size) noexcept {
  Span& span = spans_[index];
  const Size known = std::max(span.committed, skipped), end = skipped + size;
  if (known >= end) return true;
  if (!arena_->commit({span.range.begin + known, end - known})) return false;
  if (span.committed >= skipped) span.committed = end;
  return true;
}

/// Room for the two span records that one allocation may need.
bool SpanHeap::reserve_records() noexcept {
  return spans_.capacity() - spans_.size() >= 2 || spans_.reserve(2 * spans_.capacity());
}

/// A fresh span record; the caller has reserved room for it.
SpanHeap::Index SpanHeap::take_record() noexcept {
  Index index = unused_;
  if (index != 0) {
    unused_ = spans_[index].after;
    spans_[index] = {};
  } else {
    index = static_cast<Index>(spans_.size());
    if (!spans_.push_back({})) return 0;
  }
  spans_[index].priority = treap_priority(index);
  return index;
}

}  // namespace memoir
