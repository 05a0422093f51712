// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/device_pool_heap.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace memoir {

DevicePoolHeap::DevicePoolHeap(Arena& arena, const DevicePoolOptions& options, StreamOrder* order,
                               Segments* plain) noexcept
    : arena_(&arena), order_(order), plain_(plain), options_(options) {
  const Size granule = arena.granule(), capacity = align_down(arena.capacity(), granule);
  if (capacity == 0 || !is_power_of_two(options.alignment) || options.alignment > granule) return;
  shift_ = std::countr_zero(options.alignment);
  if (!blocks_.push_back({}) || !reserve_records(8)) return;
  blocks_[0].state = State::kLive;
  if (find_slot(0) == kNoSlot || !moves_.assign(size_t{1} << kMoveBits, 0)) return;
  capacity_ = capacity;
  head_ = take_record();
  blocks_[head_].range = {0, capacity};
  blocks_[head_].state = State::kHole;
}

// --- blocks in a row ---

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
  if (starts_.in_use() && first.zone != Zone::kPlain) note_start(at, rest);
  return rest;
}

/// The block swallows the one after it; neither is in a bin.
void DevicePoolHeap::join_after(Index index) noexcept {
  Block& left = blocks_[index];
  const Index gone = left.after;
  Block& right = blocks_[gone];
  if (starts_.in_use() && left.zone != Zone::kPlain) forget_start(right.range.begin);
  left.range.size += right.range.size;
  if (left.moment < right.moment) {
    left.moment = right.moment;
    left.slot = right.slot;
  }
  left.after = right.after;
  if (left.after != 0) blocks_[left.after].before = index;
  drop_record(gone);
}

void DevicePoolHeap::drop_record(Index index) noexcept {
  blocks_[index].range.size = 0;
  blocks_[index].after = unused_;
  unused_ = index;
}

void DevicePoolHeap::note_start(Offset begin, Index index) noexcept {
  starts_.insert(units(begin));
  by_start_.insert(begin, index);
}

void DevicePoolHeap::forget_start(Offset begin) noexcept {
  starts_.erase(units(begin));
  by_start_.take(begin);
}

bool DevicePoolHeap::can_join(Index left, Index right) const noexcept {
  const Block &a = blocks_[left], &b = blocks_[right];
  if (a.state != b.state || a.zone != b.zone) return false;
  // What no stream has used goes with what one has; but not the addresses that nobody has used yet with the
  // few that somebody has.
  if (a.state == State::kFree) return a.slot == b.slot || a.moment == 0 || b.moment == 0;
  return a.state == State::kHole && (a.moment == 0 ? b.moment == 0 : b.moment != 0 && a.slot == b.slot);
}

void DevicePoolHeap::put_in_bin(Index index) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).insert(blocks_.data(), index, units(block.range.size));
}

void DevicePoolHeap::take_from_bin(Index index) noexcept {
  const Block& block = blocks_[index];
  bins_of(block.slot, block.zone).erase(blocks_.data(), index);
}

/// Joins a free block or a hole, which is in no bin, with its neighbours, and puts what comes of it in its
/// bin.
DevicePoolHeap::Index DevicePoolHeap::settle_hole(Index index) noexcept {
  const Index after = blocks_[index].after, before = blocks_[index].before;
  const bool joins_before = can_join(before, index);
  if (can_join(index, after)) join_after(index);
  if (!joins_before) return index;
  join_after(before);
  return before;
}

/// Of a free block, which is in no bin, with what no stream has used: rare, so it may look twice.
DevicePoolHeap::Index DevicePoolHeap::settle_unused(Index index) noexcept {
  if (const Index after = blocks_[index].after; can_join(index, after)) {
    take_from_bin(after);
    join_after(index);
  }
  if (const Index before = blocks_[index].before; can_join(before, index)) {
    take_from_bin(before);
    join_after(before);
    index = before;
  }
  put_in_bin(index);
  return index;
}

/// As few lists as can be are touched: a neighbour that grows stays in its own, if that is still the right
/// one.
[[gnu::always_inline]] inline DevicePoolHeap::Index DevicePoolHeap::settle_free(Index index) noexcept {
  Block* const blocks = blocks_.data();
  Block& block = blocks[index];
  const Index before = block.before, after = block.after;
  Block &left = blocks[before], &right = blocks[after];
  const bool joins_left = left.bits() == block.bits(), joins_right = right.bits() == block.bits();
  const bool is_unused = block.moment == 0;
  const bool may_join_left = !joins_left & (left.state == State::kFree) & (is_unused | (left.moment == 0));
  const bool may_join_right =
      !joins_right & (right.state == State::kFree) & (is_unused | (right.moment == 0));
  if (may_join_left | may_join_right) [[unlikely]]
    return settle_unused(index);
  FreeBins& bins = bins_of(block.slot, block.zone);
  if (!joins_left && !joins_right) {
    bins.insert(blocks, index, units(block.range.size));
    return index;
  }
  if (starts_.in_use() && block.zone != Zone::kPlain) [[unlikely]] {
    if (joins_left) forget_start(block.range.begin);
    if (joins_right) forget_start(right.range.begin);
  }
  if (!joins_left) {
    right.range = {block.range.begin, right.range.size + block.range.size};
    right.moment = std::max(right.moment, block.moment);
    right.before = before;
    blocks[before].after = after;
    head_ = head_ == index ? after : head_;
    if (starts_.in_use() && block.zone != Zone::kPlain) [[unlikely]] {
      by_start_.take(block.range.begin);
      by_start_.insert(block.range.begin, after);
    }
    bins.resize(blocks, after, units(right.range.size));
    drop_record(index);
    return after;
  }
  left.range.size += block.range.size;
  left.moment = std::max(left.moment, block.moment);
  left.after = after;
  if (joins_right) {
    bins.erase(blocks, after);
    left.range.size += right.range.size;
    left.moment = std::max(left.moment, right.moment);
    left.after = right.after;
    drop_record(after);
  }
  blocks[left.after].before = before;
  bins.resize(blocks, before, units(left.range.size));
  drop_record(index);
  return before;
}

/// Gives out a part of a free block that is in its bin: large objects its begin, small ones its end, so that
/// each kind finds its like beside it and small ones do not cut what large ones leave.
[[gnu::always_inline]] inline Offset DevicePoolHeap::give_part(FreeBins& bins, Index index, Size size,
                                                               Size asked, std::uint16_t slot,
                                                               Zone zone) noexcept {
  Block* const blocks = blocks_.data();
  Block& whole = blocks[index];
  const Range range = whole.range;
  if (range.size == size) {
    bins.erase(blocks, index);
  } else {
    const Index part = take_record();
    Block& taken = blocks[part];
    whole.range.size -= size;
    taken.range.size = size;
    taken.zone = zone;
    if (size < options_.small) {
      taken.range.begin = range.end() - size;
      taken.before = index;
      taken.after = whole.after;
      blocks[whole.after].before = part;
      whole.after = part;
    } else {
      taken.range.begin = range.begin;
      taken.before = whole.before;
      taken.after = index;
      blocks[whole.before].after = part;
      whole.before = part;
      whole.range.begin = range.begin + size;
      head_ = head_ == index ? part : head_;
    }
    if (starts_.in_use() && zone != Zone::kPlain) [[unlikely]] {
      if (taken.range.begin == range.begin) {
        by_start_.take(range.begin);
        by_start_.insert(range.begin, part);
        note_start(whole.range.begin, index);
      } else {
        note_start(taken.range.begin, part);
      }
    }
    bins.resize(blocks, index, units(whole.range.size));
    index = part;
  }
  begin_life(index, asked, slot, zone);
  return blocks[index].range.begin;
}

Offset DevicePoolHeap::take_part(Index index, Size size, Size asked, std::uint16_t slot) noexcept {
  const Use use = blocks_[index];
  return give_part(bins_of(use.slot, use.zone), index, size, asked, slot, use.zone);
}

DevicePoolHeap::Index DevicePoolHeap::settle(Index index) noexcept {
  return blocks_[index].state == State::kFree ? settle_free(index) : settle_hole(index);
}

// --- what the fast path is ---

Offset DevicePoolHeap::allocate(const Request& request) noexcept {
  if (request.size - 1 >= capacity_ || !is_power_of_two(request.alignment)) [[unlikely]]
    return kNoOffset;  // a size of 0 as well, and all when there is no metadata memory
  const Size size = align_up(request.size, options_.alignment);
  const std::uint16_t slot = slot_of(request.stream);
  if (slot == kNoSlot || !reserve_records(4)) [[unlikely]]
    return kNoOffset;
  if (request.plain) [[unlikely]]
    return allocate_plain(request, size, slot);
  if (request.alignment <= options_.alignment) [[likely]] {
    if (size < options_.small) {
      Index& recent = recent_of(size, slot);
      const Index index = recent;
      if (blocks_[index].range.size == size && blocks_[index].slot == slot) {
        recent = 0;
        begin_life(index, request.size, slot, Zone::kCommon);
        return blocks_[index].range.begin;
      }
    }
    FreeBins& bins = bins_of(slot, Zone::kCommon);
    const Index index = bins.find(blocks_.data(), size, units(size));
    if (index != 0) [[likely]]
      return give_part(bins, index, size, request.size, slot, Zone::kCommon);
  }
  return allocate_slowly(request, size, slot);
}

bool DevicePoolHeap::free(Offset offset) noexcept {
  const Index index = live_blocks_.take(blocks_.data(), offset);
  if (index == 0) return false;
  Block& block = blocks_[index];
  live_ -= block.asked;
  if (block.zone != Zone::kPlain) held_ -= block.range.size;
  if (block.zone == Zone::kAside) [[unlikely]]
    held_aside_ -= block.range.size;
  block.moment = order_ != nullptr ? order_->now() : 1;
  if (detector_ != nullptr) detector_->note_free(block.number);
  Index done = index;  // the block that is joined with its neighbours now
  if (block.range.size < options_.small && block.zone == Zone::kCommon) {
    block.set({block.slot, State::kRecent, Zone::kCommon});
    done = std::exchange(recent_of(block.range.size, block.slot), index);
    if (done == 0) return true;
  }
  blocks_[done].set({blocks_[done].slot, State::kFree, blocks_[done].zone});
  settle_free(done);
  return true;
}

bool DevicePoolHeap::has_free(const Request& request) const noexcept {
  if (!ok() || request.plain || request.alignment > options_.alignment) return false;
  const Size size = align_up(request.size, options_.alignment);
  for (std::uint16_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot] != request.stream) continue;
    const FreeBins& bins = bins_[slot * kZones + static_cast<size_t>(Zone::kCommon)];
    return bins.find(blocks_.data(), size, units(size)) != 0;
  }
  return false;
}

Size DevicePoolHeap::size_of(Offset offset) const noexcept {
  return blocks_.empty() ? 0 : blocks_[live_blocks_.find(blocks_.data(), offset)].range.size;
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
    room_ = 0;
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
  if (slot == kNoSlot || !reserve_records(8)) return kNoOffset;
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
