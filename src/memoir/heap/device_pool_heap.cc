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
  head_ = take_record();
  blocks_[head_].range = {0, capacity};
  blocks_[head_].state = State::kHole;
}

Offset DevicePoolHeap::allocate(const Request& request) noexcept {
  if (request.size - 1 >= arena_->capacity() || !is_power_of_two(request.alignment) || !ok()) [[unlikely]] {
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
