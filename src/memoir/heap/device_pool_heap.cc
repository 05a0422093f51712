// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/device_pool_heap.h"

#include <algorithm>
#include <bit>

namespace memoir {

DevicePoolHeap::DevicePoolHeap(Arena& arena, const DevicePoolOptions& options, StreamOrder* order,
                               Segments* plain) noexcept
    : arena_(&arena), order_(order), plain_(plain), options_(options) {
  const Size granule = arena.granule(), capacity = align_down(arena.capacity(), granule);
  if (capacity == 0 || !is_power_of_two(options.alignment) || options.alignment > granule) return;
  shift_ = std::countr_zero(options.alignment);
  if (!blocks_.push_back({}) || !reserve_records(8) || !live_blocks_.reserve_one()) return;
  if (find_slot(0) == kNoSlot || !moves_.assign(size_t{1} << kMoveBits, 0)) return;
  capacity_ = capacity;
  head_ = take_record();
  blocks_[head_].range = {0, capacity};
  blocks_[head_].state = State::kHole;
}

// --- blocks in a row ---

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
  if (a.state != b.state || a.zone != b.zone) return false;
  // What no stream has used goes with what one has; but not the addresses that nobody has used yet with the few
  // that somebody has.
  if (a.state == State::kFree) return a.slot == b.slot || a.moment == 0 || b.moment == 0;
  return a.state == State::kHole && (a.slot == b.slot || (a.moment == 0 && b.moment == 0));
}

void DevicePoolHeap::put_in_bin(Index index) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).insert(blocks_.data(), index, units(block.range.size));
}

void DevicePoolHeap::take_from_bin(Index index) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).erase(blocks_.data(), index, units(block.range.size));
}

/// The block, which is in a bin, had this size when it was put there.
void DevicePoolHeap::resize_in_bin(Index index, Size before) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).resize(blocks_.data(), index, units(before), units(block.range.size));
}

/// Joins a free block or a hole, which is in no bin, with its neighbours, and puts what comes of it in its bin.
DevicePoolHeap::Index DevicePoolHeap::settle(Index index) noexcept {
  const bool is_free = blocks_[index].state == State::kFree;
  const Index after = blocks_[index].after, before = blocks_[index].before;
  const bool joins_before = before != 0 && can_join(before, index);
  if (after != 0 && can_join(index, after)) {
    if (is_free) take_from_bin(after);
    join_after(index);
  }
  if (!joins_before) {
    if (is_free) put_in_bin(index);
    return index;
  }
  if (!is_free) {
    join_after(before);
  } else if (blocks_[before].slot == blocks_[index].slot) {
    const Size size = blocks_[before].range.size;
    join_after(before);
    resize_in_bin(before, size);
  } else {
    take_from_bin(before);
    join_after(before);
    put_in_bin(before);
  }
  return before;
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
  const Range range = blocks_[index].range;
  if (range.size == size) {
    take_from_bin(index);
  } else if (size < options_.small) {
    const Index rest = index;
    index = cut(index, range.end() - size);
    resize_in_bin(rest, range.size);
  } else {
    take_from_bin(index);
    put_in_bin(cut(index, range.begin + size));
  }
  begin_life(index, asked, slot);
  return blocks_[index].range.begin;
}

// --- what the fast path is ---

Offset DevicePoolHeap::allocate(const Request& request) noexcept {
  if (request.size - 1 >= capacity_ || !is_power_of_two(request.alignment) || !ok()) [[unlikely]] {
    return kNoOffset;  // a size of 0 as well
  }
  const Size size = align_up(request.size, options_.alignment);
  const std::uint16_t slot = slot_of(request.stream);
  if (slot == kNoSlot || !reserve_records(4) || !live_blocks_.reserve_one()) [[unlikely]]
    return kNoOffset;
  if (request.plain) [[unlikely]]
    return allocate_plain(request, size, slot);
  if (request.alignment <= options_.alignment) [[likely]] {
    Index& recent = recent_of(size, slot);
    Index index = recent;
    if (blocks_[index].range.size == size && blocks_[index].slot == slot) {
      recent = 0;
      begin_life(index, request.size, slot);
      return blocks_[index].range.begin;
    }
    index = bins_of(slot, Zone::kCommon).find(blocks_.data(), size, units(size));
    if (index != 0) [[likely]]
      return take_part(index, size, request.size, slot);
  }
  return allocate_slowly(request, size, slot);
}

bool DevicePoolHeap::free(Offset offset) noexcept {
  const Index index = live_blocks_.take(offset);
  if (index == 0) return false;
  Block& block = blocks_[index];
  live_ -= block.asked;
  if (block.zone != Zone::kPlain) held_ -= block.range.size;
  if (block.zone == Zone::kAside) [[unlikely]]
    held_aside_ -= block.range.size;
  block.asked = 0;
  block.moment = order_ != nullptr ? order_->now() : 1;
  if (block.range.size >= options_.small || block.zone != Zone::kCommon) {
    block.state = State::kFree;
    settle(index);
    return true;
  }
  block.state = State::kRecent;
  Index& recent = recent_of(block.range.size, block.slot);
  const Index older = recent;
  recent = index;
  if (older != 0) {
    blocks_[older].state = State::kFree;
    settle(older);
  }
  return true;
}

Size DevicePoolHeap::size_of(Offset offset) const noexcept {
  return blocks_.empty() ? 0 : blocks_[live_blocks_.find(offset)].range.size;
}

void DevicePoolHeap::trim() noexcept {
  if (!ok()) return;
  forget_recent();
  join_across();
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    const Range found = idle(blocks_[index]);
    if (found.size != 0 && reserve_records(2)) index = make_hole(index, found);
  }
  if (plain_ != nullptr) give_back_plain();
}

bool DevicePoolHeap::set_aside(Size size) noexcept {
  if (!ok() || !reserve_records(4)) return false;
  forget_recent();
  if (!starts_.in_use()) {
    if (!by_start_.reserve(blocks_.size() + 4) || !starts_.reset(units(arena_->capacity()) + 1)) return false;
    for (Index index = head_; index != 0; index = blocks_[index].after) {
      starts_.insert(units(blocks_[index].range.begin));
      by_start_.insert(blocks_[index].range.begin, index);
    }
  }
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    Block& block = blocks_[index];
    if (block.zone != Zone::kAside) continue;
    if (block.state == State::kFree) take_from_bin(index);
    block.zone = Zone::kCommon;
    if (block.state != State::kLive) index = settle(index);
  }
  aside_ = {};
  held_aside_ = 0;
  if (size == 0) return true;
  size = align_up(size, arena_->granule());
  Index best = 0;  // the largest hole: the addresses that nobody has used yet
  for (Index index = head_; index != 0; index = blocks_[index].after) {
    const Block& block = blocks_[index];
    if (block.state == State::kHole && block.range.size > blocks_[best].range.size) best = index;
  }
  if (blocks_[best].range.size < size) return false;
  if (blocks_[best].range.size > size) cut(best, blocks_[best].range.begin + size);
  blocks_[best].zone = Zone::kAside;
  aside_ = {blocks_[best].range.begin, size};
  return true;
}

Offset DevicePoolHeap::allocate_at(Offset offset, const Request& request) noexcept {
  if (request.size == 0 || !is_power_of_two(request.alignment) || offset % request.alignment != 0 ||
      offset % options_.alignment != 0 || offset < aside_.begin || offset >= aside_.end() ||
      request.size > aside_.end() - offset) {
    return kNoOffset;
  }
  const Range range{offset, align_up(request.size, options_.alignment)};
  const std::uint16_t slot = slot_of(request.stream);
  if (slot == kNoSlot || !reserve_records(8) || !live_blocks_.reserve_one()) return kNoOffset;
  Index first = block_at(offset);
  Size need = 0;
  for (Index index = first;; index = blocks_[index].after) {
    if (index == 0 || blocks_[index].state == State::kLive || blocks_[index].zone != Zone::kAside)
      return kNoOffset;
    need += need_of(blocks_[index], range);
    if (blocks_[index].range.end() >= range.end()) break;
  }
  if (!order_all(first, range, slot)) return kNoOffset;
  if (need != 0) {
    forget_recent();
    if (!commit_all(first, range, need)) return kNoOffset;
  }
  return take_window(first, range, request.size, slot);
}

}  // namespace memoir
