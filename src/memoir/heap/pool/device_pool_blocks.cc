// SPDX-License-Identifier: Apache-2.0
//
// DevicePoolHeap: its blocks in a row, cut and joined.
#include <algorithm>

#include "memoir/heap/pool/device_pool_heap.h"

namespace memoir {

namespace {
constexpr size_t kMostStreams = 256;  // each costs 24 KiB of bins; requests of others are refused
}

std::uint16_t DevicePoolHeap::find_slot(StreamId stream) noexcept {
  for (size_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot] == stream) return slots_[stream % slots_.size()] = static_cast<std::uint16_t>(slot);
  }
  if (streams_.size() == kMostStreams || !bins_.reserve(bins_.size() + kZones) ||
      !streams_.push_back(stream)) {
    return kNoSlot;
  }
  for (size_t zone = 0; zone < kZones; ++zone) bins_.push_back({});
  return slots_[stream % slots_.size()] = static_cast<std::uint16_t>(streams_.size() - 1);
}

bool DevicePoolHeap::make_room(size_t count) noexcept {
  // Records that were given up are reused first, but each request takes few: room for all of them is
  // simplest.
  if (starts_.in_use() && !by_start_.reserve(by_start_.size() + count)) return false;
  if (blocks_.capacity() - blocks_.size() < count &&
      !blocks_.reserve(std::max<size_t>(2 * blocks_.size(), 1024)))
    return false;
  if (!live_blocks_.reserve(blocks_.data(), blocks_.capacity())) return false;
  room_ = starts_.in_use() ? 0 : blocks_.capacity();
  return true;
}

DevicePoolHeap::Index DevicePoolHeap::new_record() noexcept {
  blocks_.push_back({});
  return static_cast<Index>(blocks_.size() - 1);
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
  begin_life(at, asked, slot, blocks_[at].zone);
  if (left != 0) settle(left);
  if (right != 0) settle(right);
  return range.begin;
}

bool DevicePoolHeap::break_up(Offset offset, std::span<const Part> parts) noexcept {
  if (!ok() || live_blocks_.find(blocks_.data(), offset) == 0 || !reserve_records(2 * parts.size() + 4))
    return false;
  for (const Part& part : parts) {
    if (slot_of(part.stream) == kNoSlot) return false;
  }
  Index rest = live_blocks_.take(blocks_.data(), offset);
  const Use use = blocks_[rest];
  const Offset end = blocks_[rest].range.end();
  live_ -= blocks_[rest].asked;
  if (use.zone != Zone::kPlain) held_ -= blocks_[rest].range.size;
  if (use.zone == Zone::kAside) held_aside_ -= blocks_[rest].range.size;
  blocks_[rest].moment = order_ != nullptr ? order_->now() : 1;
  const auto let_go = [&](Index index) {
    blocks_[index].set({use.slot, State::kFree, use.zone});
    settle(index);
  };
  for (const auto& [part, stream] : parts) {
    if (part.begin > blocks_[rest].range.begin) {
      const Index gap = rest;
      rest = cut(gap, part.begin);
      let_go(gap);
    }
    const Offset part_end = align_up(part.end(), options_.alignment);
    const Index index = rest;
    rest = part_end < end ? cut(index, part_end) : 0;
    begin_life(index, part.size, slot_of(stream), use.zone);
  }
  if (rest != 0) let_go(rest);
  return true;
}

}  // namespace memoir
