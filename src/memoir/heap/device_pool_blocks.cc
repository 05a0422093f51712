// SPDX-License-Identifier: Apache-2.0
//
// DevicePoolHeap: its blocks in a row, cut and joined.
#include <algorithm>

#include "memoir/heap/device_pool_heap.h"

namespace memoir {

namespace {
constexpr size_t kMostStreams = 256;  // each costs 24 KiB of bins; requests of others are refused
}

std::uint16_t DevicePoolHeap::find_slot(StreamId stream) noexcept {
  for (size_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot] == stream) return slot_ = static_cast<std::uint16_t>(slot);
  }
  if (streams_.size() == kMostStreams || !bins_.reserve(bins_.size() + kZones) ||
      !streams_.push_back(stream)) {
    return kNoSlot;
  }
  for (size_t zone = 0; zone < kZones; ++zone) bins_.push_back({});
  return slot_ = static_cast<std::uint16_t>(streams_.size() - 1);
}

bool DevicePoolHeap::reserve_records(size_t count) noexcept {
  // Records that were given up are reused first, but each request takes few: room for all of them is simplest.
  if (starts_.in_use() && !by_start_.reserve(by_start_.size() + count)) return false;
  return blocks_.capacity() - blocks_.size() >= count ||
         blocks_.reserve(std::max<size_t>(2 * blocks_.size(), 1024));
}

DevicePoolHeap::Index DevicePoolHeap::take_record() noexcept {
  if (const Index index = unused_; index != 0) {
    unused_ = blocks_[index].after;
    return index;
  }
  blocks_.push_back({});  // reserve_records() was asked
  return static_cast<Index>(blocks_.size() - 1);
}

/// Cuts a block that is in no bin; gives back the second part, in no bin either.
DevicePoolHeap::Index DevicePoolHeap::cut(Index index, Offset at) noexcept {
  const Index rest = take_record();
  Block& first = blocks_[index];
  Block& second = blocks_[rest];
  second = first;
  second.range = {at, first.range.end() - at};
  first.range.size = at - first.range.begin;
  second.before = index;
  first.after = rest;
  if (second.after != 0) blocks_[second.after].before = rest;
  if (starts_.in_use() && first.zone != Zone::kPlain) {
    starts_.insert(units(at));
    by_start_.insert(at, rest);
  }
  return rest;
}

/// The block swallows the one after it; neither is in a bin.
void DevicePoolHeap::join_after(Index index) noexcept {
  Block& left = blocks_[index];
  const Index gone = left.after;
  Block& right = blocks_[gone];
  if (starts_.in_use() && left.zone != Zone::kPlain) {
    starts_.erase(units(right.range.begin));
    by_start_.take(right.range.begin);
  }
  left.range.size += right.range.size;
  if (left.moment < right.moment) {
    left.moment = right.moment;
    left.slot = right.slot;
  }
  left.after = right.after;
  if (left.after != 0) blocks_[left.after].before = index;
  right.range.size = 0;
  right.after = unused_;
  unused_ = gone;
}

bool DevicePoolHeap::can_join(Index left, Index right) const noexcept {
  const Block &a = blocks_[left], &b = blocks_[right];
  return a.state == b.state && a.state != State::kLive && a.state != State::kRecent && a.zone == b.zone &&
         (a.slot == b.slot || a.moment == 0 || b.moment == 0);
}

void DevicePoolHeap::put_in_bin(Index index) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).insert(blocks_.data(), index, units(block.range.size));
}

void DevicePoolHeap::take_from_bin(Index index) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).erase(blocks_.data(), index, units(block.range.size));
}

/// Joins a free block or a hole, which is in no bin, with its neighbours, and puts what comes of it in its bin.
DevicePoolHeap::Index DevicePoolHeap::settle(Index index) noexcept {
  const bool is_free = blocks_[index].state == State::kFree;
  if (const Index after = blocks_[index].after; after != 0 && can_join(index, after)) {
    if (is_free) take_from_bin(after);
    join_after(index);
  }
  if (const Index before = blocks_[index].before; before != 0 && can_join(before, index)) {
    if (is_free) take_from_bin(before);
    join_after(before);
    index = before;
  }
  if (is_free) put_in_bin(index);
  return index;
}

/// The block of the arena that the offset lies in.
DevicePoolHeap::Index DevicePoolHeap::block_at(Offset offset) const noexcept {
  if (starts_.in_use()) return by_start_.find(starts_.at_or_before(units(offset)) << shift_);
  Index index = head_;
  while (blocks_[index].range.end() <= offset) index = blocks_[index].after;
  return index;
}

/// Joins what was freed last with its neighbours.
void DevicePoolHeap::forget_recent() noexcept {
  for (Index& recent : recent_) {
    if (recent == 0) continue;
    blocks_[recent].state = State::kFree;
    settle(recent);
    recent = 0;
  }
}

void DevicePoolHeap::begin_life(Index index, Size asked, std::uint16_t slot) noexcept {
  Block& block = blocks_[index];
  block.state = State::kLive;
  block.asked = asked;
  block.slot = slot;
  live_blocks_.insert(block.range.begin, index);
  live_ += asked;
  if (block.zone == Zone::kPlain) return;
  held_ += block.range.size;
  if (block.zone == Zone::kAside) [[unlikely]]
    held_aside_ += block.range.size;
  peak_held_ = std::max(peak_held_, held_);
}

/// Gives out a part of a free block that is in its bin: large objects its begin, small ones its end, so that
/// each kind finds its like beside it and small ones do not cut what large ones leave.
Offset DevicePoolHeap::take_part(Index index, Size size, Size asked, std::uint16_t slot) noexcept {
  take_from_bin(index);
  if (const Range range = blocks_[index].range; range.size != size) {
    if (size < options_.small) {
      const Index rest = index;
      index = cut(index, range.end() - size);
      put_in_bin(rest);
    } else {
      put_in_bin(cut(index, range.begin + size));
    }
  }
  begin_life(index, asked, slot);
  return blocks_[index].range.begin;
}

/// Gives out a range that lies in a row of free blocks and holes of one zone, beginning in `first`. What it
/// touches of the holes is committed already.
Offset DevicePoolHeap::take_window(Index first, Range range, Size asked, std::uint16_t slot) noexcept {
  const Size granule = arena_->granule();
  Index at = first;
  for (Index index = first; index != 0 && blocks_[index].range.begin < range.end();
       index = blocks_[index].after) {
    if (blocks_[index].state == State::kFree) {
      take_from_bin(index);
    } else {
      const Offset begin = std::max(blocks_[index].range.begin, align_down(range.begin, granule));
      const Offset end = std::min(blocks_[index].range.end(), align_up(range.end(), granule));
      if (begin > blocks_[index].range.begin) {
        const bool is_first = index == at;
        index = cut(index, begin);
        if (is_first) at = index;
      }
      if (end < blocks_[index].range.end()) cut(index, end);
      blocks_[index].state = State::kFree;
    }
  }
  Index left = 0, right = 0;
  if (blocks_[at].range.begin < range.begin) {
    left = at;
    at = cut(at, range.begin);
  }
  Index last = at;
  while (blocks_[last].range.end() < range.end()) last = blocks_[last].after;
  if (blocks_[last].range.end() > range.end())
    right = cut(last, range.end());  // before it forgets its stream
  while (blocks_[at].range.end() < range.end()) join_after(at);
  begin_life(at, asked, slot);
  if (left != 0) settle(left);
  if (right != 0) settle(right);
  return range.begin;
}

}  // namespace memoir
