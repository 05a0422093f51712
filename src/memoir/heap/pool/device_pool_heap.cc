// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/device_pool_heap.h"

#include <bit>

namespace memoir {

DevicePoolHeap::DevicePoolHeap(Arena& arena, const DevicePoolOptions& options, StreamOrder* order,
                               Segments* plain) noexcept
    : arena_(&arena),
      order_(order),
      plain_(plain),
      options_(options),
      row_(is_power_of_two(options.alignment) ? options.alignment : 1, options.small),
      windows_(row_, arena, order) {
  const Size granule = arena.granule(), capacity = align_down(arena.capacity(), granule);
  if (capacity == 0 || !is_power_of_two(options.alignment) || options.alignment > granule) return;
  if (!row_.begin(capacity) || !moves_.assign(size_t{1} << kSizeBits, 0) ||
      !requests_.assign(size_t{1} << kSizeBits, 0))
    return;
  capacity_ = capacity;
}

// --- what the fast path is ---

Offset DevicePoolHeap::allocate(const Request& request) noexcept {
  if (request.size - 1 >= capacity_ || !is_power_of_two(request.alignment)) [[unlikely]]
    return kNoOffset;  // a size of 0 as well, and all when there is no metadata memory
  const Size size = align_up(request.size, options_.alignment);
  const std::uint16_t slot = row_.slot_of(request.stream);
  if (slot == PoolRow::kNoSlot || !row_.reserve_records(4)) [[unlikely]]
    return kNoOffset;
  if (request.plain) [[unlikely]]
    return allocate_plain(request, size, slot);
  if (request.alignment <= options_.alignment) [[likely]] {
    const Zone zone = zone_for(size);
    if (size < options_.small && zone == Zone::kCommon) {
      const Index recent = row_.take_recent(size, request.size, slot);
      if (recent != 0) return begin_life(recent, request.size, slot, zone);
    }
    const Index index = row_.find(slot, zone, size);
    if (index != 0 && !may_fit_better(index, size) && !is_much_too_large(index, size)) [[likely]] {
      const Index found = row_.take_found(index, size, request.size, slot, zone, end_for(size));
      return begin_life(found, request.size, slot, zone);
    }
  }
  return allocate_slowly(request, size, slot);
}

bool DevicePoolHeap::free(Offset offset) noexcept {
  const Index index = row_.take_live(offset);
  if (index == 0) return false;
  Block& block = row_[index];
  end_life(block);
  if (detector_ != nullptr) detector_->note_free(block.number);
  row_.put_back(index);
  return true;
}

inline void DevicePoolHeap::end_life(Block& block) noexcept {
  live_ -= block.asked;
  if (block.zone != Zone::kPlain) held_ -= block.range.size;
  if (block.zone == Zone::kAside) [[unlikely]]
    aside_.gave(block.range.size);
  block.moment = order_ != nullptr ? order_->now() : 1;
}

bool DevicePoolHeap::has_free(const Request& request) const noexcept {
  if (!ok() || request.plain || request.alignment > options_.alignment) return false;
  const Size size = align_up(request.size, options_.alignment);
  for (std::uint16_t slot = 0; slot < row_.slots(); ++slot) {
    if (row_.stream_of(slot) == request.stream) return row_.find(slot, zone_for(size), size) != 0;
  }
  return false;
}

Size DevicePoolHeap::size_of(Offset offset) const noexcept {
  const Index index = row_.find_live(offset);
  return index == 0 ? 0 : row_[index].range.size;
}

void DevicePoolHeap::trim() noexcept {
  if (!ok()) return;
  row_.forget_recent();
  join_across();
  for (Index index = row_.head(); index != 0; index = row_[index].after) {
    const Range found = idle(row_[index]);
    if (found.size == 0 || !row_.reserve_records(2)) continue;
    arena_->decommit(found);
    ++counters_.decommits;
    index = row_.make_hole(index, found);
  }
  arena_->settle();
  if (plain_ != nullptr) give_back_plain();
}

bool DevicePoolHeap::break_up(Offset offset, std::span<const Part> parts) noexcept {
  if (!ok() || row_.find_live(offset) == 0 || !row_.reserve_records(2 * parts.size() + 4)) return false;
  for (const Part& part : parts) {
    if (row_.slot_of(part.stream) == PoolRow::kNoSlot) return false;
  }
  Index rest = row_.take_live(offset);
  const PoolRow::Use use = row_[rest];
  const Offset end = row_[rest].range.end();
  end_life(row_[rest]);
  const auto let_go = [&](Index index) {
    row_[index].set({use.slot, State::kFree, use.zone});
    row_.settle(index);
  };
  for (const auto& [part, stream] : parts) {
    if (part.begin > row_[rest].range.begin) {
      const Index gap = rest;
      rest = row_.cut(gap, part.begin);
      let_go(gap);
    }
    const Offset part_end = align_up(part.end(), options_.alignment);
    const Index index = rest;
    rest = part_end < end ? row_.cut(index, part_end) : 0;
    row_.begin_life(index, part.size, row_.slot_of(stream), use.zone);
    begin_life(index);
  }
  if (rest != 0) let_go(rest);
  return true;
}

// --- for a heap that knows where things will go ---

bool DevicePoolHeap::set_aside(Size size) noexcept {
  return ok() && aside_.set(row_, align_up(size, arena_->granule()));
}

Offset DevicePoolHeap::allocate_at(Offset offset, const Request& request) noexcept {
  if (request.size == 0 || !is_power_of_two(request.alignment) || offset % request.alignment != 0 ||
      offset % options_.alignment != 0 || !aside_.holds({offset, request.size})) {
    return kNoOffset;
  }
  const Range range{offset, align_up(request.size, options_.alignment)};
  const std::uint16_t slot = row_.slot_of(request.stream);
  if (slot == PoolRow::kNoSlot || !row_.reserve_records(8)) return kNoOffset;
  Index first = aside_.free_at(row_, range);
  if (first == 0 || !order_all(first, range, slot)) return kNoOffset;
  Size need = 0;
  for (Index index = first; index != 0 && row_[index].range.begin < range.end(); index = row_[index].after)
    need += windows_.need_of(row_[index], range);
  if (need != 0) {
    row_.forget_recent();
    Size ahead = 0;  // is set aside: none
    if (!commit_all(first, range, need, ahead)) return kNoOffset;
  }
  return begin_life(row_.take_window(first, range, arena_->granule(), request.size, slot));
}

}  // namespace memoir
