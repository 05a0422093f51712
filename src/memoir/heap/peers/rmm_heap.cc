// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/rmm_heap.h"

#include <algorithm>

namespace memoir {

namespace {

enum PhaseIndex : size_t { kOwn, kSteal, kJoin, kGrow, kFree };
constexpr const char* kPhases[] = {"1 own stream", "2 steal", "3 merge", "4 grow", "free"};
constexpr Size kLargest = Size{1} << 62;  // bytes of a request: sums of sizes stay below 2^64

}  // namespace

RmmHeap::RmmHeap(Segments& segments, const RmmOptions& options, StreamOrder* order,
                 PhaseTable* phases) noexcept
    : segments_(&segments), options_(options), order_(order), phases_(phases) {
  if (options.initial > kLargest || (options.maximum != 0 && options.initial > options.maximum)) return;
  if (phases != nullptr) phases->name(kPhases);
  if (!blocks_.start()) return;
  if (options.initial != 0) {
    const Index list = list_of(0);
    const Index index = list == kLive ? 0 : take(align_up(options.initial, kAlignment));
    if (index == 0) return;
    insert(index, list);
  }
  ready_ = true;
}

Offset RmmHeap::allocate(const Request& request) noexcept {
  if (!ready_ || request.size == 0 || request.size > kLargest || !is_power_of_two(request.alignment) ||
      request.alignment > kAlignment) {
    return kNoOffset;
  }
  // Room for the segment's block, the rest that is cut off, and the object: from here on nothing fails
  // half-way.
  if (!blocks_.reserve(2) || !table_.reserve_one()) return kNoOffset;
  const Index list = list_of(request.stream);
  if (list == kLive) return kNoOffset;
  const Size size = align_up(request.size, kAlignment);
  const Index index = find(size, list);
  if (index == 0) return kNoOffset;
  if (blocks_[index].range.size != size) insert(blocks_.cut(index, size), list);
  RmmBlock& block = blocks_[index];
  block.asked = request.size;
  block.owner = list;
  table_.insert(block.range.begin, index);
  live_ += request.size;
  return block.range.begin;
}

bool RmmHeap::free(Offset offset) noexcept {
  const PhaseTable::Timer timer(phases_, kFree);
  const Index index = table_.take(offset);
  if (index == 0) return false;
  live_ -= blocks_[index].asked;
  const Index list = blocks_[index].owner;
  if (order_ != nullptr) lists_[list].moment = order_->now();
  insert(index, list);
  return true;
}

Size RmmHeap::size_of(Offset offset) const noexcept {
  const Index index = table_.find(offset);
  return index == 0 ? 0 : blocks_[index].range.size;
}

/// The list of a stream, made when it is new; kLive when there is no metadata memory.
RmmHeap::Index RmmHeap::list_of(StreamId stream) noexcept {
  for (Index list = 0; list < lists_.size(); ++list) {
    if (lists_[list].stream == stream) return list;
  }
  return lists_.push_back({stream, 0, {}}) ? static_cast<Index>(lists_.size() - 1) : kLive;
}

// --- which block ---

/// A block of at least `size` bytes, in no list, or 0.
RmmHeap::Index RmmHeap::find(Size size, Index list) noexcept {
  {
    const PhaseTable::Timer timer(phases_, kOwn);
    if (const Index index = best(size, list); index != 0) {
      erase(index);
      return index;
    }
  }
  if (lists_.size() > 1) {
    {
      const PhaseTable::Timer timer(phases_, kSteal);
      if (const Index index = find_elsewhere(size, list, false); index != 0) return index;
    }
    const PhaseTable::Timer timer(phases_, kJoin);
    if (const Index index = find_elsewhere(size, list, true); index != 0) return index;
  }
  const PhaseTable::Timer timer(phases_, kGrow);
  return grow(size);
}

RmmHeap::Index RmmHeap::best(Size size, Index list) const noexcept {
  return lists_[list].blocks.lower_bound(blocks_.data(), {size, 0});
}

/// A block of another list, all of whose blocks join this list; `join_first`: they join before it is
/// searched.
RmmHeap::Index RmmHeap::find_elsewhere(Size size, Index list, bool join_first) noexcept {
  for (Index other = 0; other < lists_.size(); ++other) {
    if (other == list || lists_[other].blocks.empty()) continue;
    Index index = join_first ? 0 : best(size, other);
    if ((!join_first && index == 0) || !wait_for(other, list)) continue;
    if (!join_first) erase(index);  // before they join: what is stolen stays the block that fitted best
    join_lists(list, other);
    if (join_first) {
      index = best(size, list);
      if (index != 0) erase(index);
    }
    if (index != 0) return index;
  }
  return 0;
}

/// Orders this list's stream after what the other list's blocks were used for. False when that cannot be.
bool RmmHeap::wait_for(Index other, Index list) noexcept {
  if (order_ == nullptr) return true;
  const List& from = lists_[other];
  return order_->is_ordered(from.stream, from.moment, lists_[list].stream) ||
         order_->order(from.stream, from.moment, lists_[list].stream);
}

void RmmHeap::join_lists(Index list, Index other) noexcept {
  for (Index index; (index = best(1, other)) != 0;) {
    erase(index);
    insert(index, list);
  }
  // A third stream that takes from this list has to wait for the wait as well.
  if (order_ != nullptr) lists_[list].moment = order_->now();
}

// --- the pool ---

RmmHeap::Index RmmHeap::grow(Size size) noexcept {
  Size attempt = size_to_grow(size);
  while (attempt >= size) {
    if (const Index index = take(attempt); index != 0) return index;
    if (attempt == size) break;
    attempt = std::max(size, align_up(attempt / 2, kAlignment));
  }
  return 0;
}

/// Bytes to try first, 0 when the maximum leaves too few.
Size RmmHeap::size_to_grow(Size size) const noexcept {
  if (options_.maximum == 0) return std::max(size, held_);
  const Size left = align_down(options_.maximum - std::min(options_.maximum, held_), kAlignment);
  return size <= left ? std::max(size, align_down(left / 2, kAlignment)) : 0;
}

RmmHeap::Index RmmHeap::take(Size size) noexcept {
  const Offset offset = segments_->take(size);
  if (offset == kNoOffset) return 0;
  held_ += size;
  return blocks_.add({offset, size});  // the caller has reserved room
}

// --- the lists ---

/// Enters a block that is in no list, joined with its neighbours of the same list.
void RmmHeap::insert(Index index, Index list) noexcept {
  if (const Index after = blocks_[index].after; after != 0 && blocks_[after].list == list) {
    erase(after);
    blocks_.drop(blocks_.join_after(index));
  }
  if (const Index before = blocks_[index].before; before != 0 && blocks_[before].list == list) {
    erase(before);
    blocks_.drop(blocks_.join_after(before));
    index = before;
  }
  blocks_[index].list = list;
  lists_[list].blocks.insert(blocks_.data(), index);
}

void RmmHeap::erase(Index index) noexcept {
  lists_[blocks_[index].list].blocks.erase(blocks_.data(), index);
  blocks_[index].list = kLive;
}

}  // namespace memoir
