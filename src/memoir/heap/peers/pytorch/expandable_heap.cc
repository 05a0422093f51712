// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/pytorch/expandable_heap.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr Size kDefaultAreas = 16;
constexpr Size kMostAreas = Size{1} << 20;

Size round_up(Size value, Size unit) { return (value + unit - 1) / unit * unit; }  // any unit
Size round_down(Size value, Size unit) { return value / unit * unit; }
}  // namespace

ExpandableHeap::ExpandableHeap(Arena& arena, const PyTorchOptions& options, Collector* collector,
                               PhaseTable* phases) noexcept
    : PyTorchPools(options, true, collector, phases), arena_(&arena) {
  const Size granule = std::max(arena.granule(), PyTorchRounding::kSmallestBlock);
  units_[0] = round_up(PyTorchRounding::kSmallSegment, granule);
  units_[1] = round_up(options.large_segment_size, granule);
  const Size device = std::min(options.device_memory, PyTorchRounding::kLargestRequest);
  if (device == 0) stride_ = align_down(arena.capacity() / kDefaultAreas, granule);
  for (int kind = 0; kind < 2; ++kind) {
    area_sizes_[kind] =
        device == 0 ? round_down(stride_, units_[kind]) : round_up(device + device / 8, units_[kind]);
  }
  stride_ = std::max({stride_, area_sizes_[0], area_sizes_[1]});
  const Size count = stride_ == 0 ? 0 : std::min(arena.capacity() / stride_, kMostAreas);
  if (count == 0 || !areas_.assign(static_cast<size_t>(count), 0)) refuse_all();
}

BlockIndex ExpandableHeap::grow(const Want& want) noexcept {
  if (!is_within_limit(want.segment)) return 0;
  BlockIndex index = find_room(want);
  if (index == 0) return 0;
  // From here on: without memory, then free or nothing; or free, then without memory.
  if (!blocks_[index].mapped && !map(index, std::min(blocks_[index].range.size, want.size))) return 0;
  while (blocks_[index].range.size < want.size) {
    const BlockIndex next = blocks_[index].after;
    if (!map(next, std::min(want.size - blocks_[index].range.size, blocks_[next].range.size))) return 0;
    index = next;  // it absorbed what was before it
  }
  erase_free(index);
  return index;
}

/// The lowest block without memory at which enough addresses follow that no object holds, or the free block
/// before it; else a new area. 0 when there are no addresses left.
BlockIndex ExpandableHeap::find_room(const Want& want) noexcept {
  const auto is_usable = [&](BlockIndex index) { return index != 0 && !blocks_[index].is_live(); };
  for (BlockIndex index = sets_[want.set].first_unmapped; index != 0; index = blocks_[index].right) {
    const BlockIndex first = is_usable(blocks_[index].before) ? blocks_[index].before : index;
    Size room = 0;
    for (BlockIndex at = first; room < want.size && is_usable(at); at = blocks_[at].after) {
      room += blocks_[at].range.size;
    }
    if (room >= want.size) return first;
  }
  return want.size <= area_sizes_[kind_of(want.set)] ? open_area(want.set) : 0;
}

BlockIndex ExpandableHeap::open_area(std::uint32_t set) noexcept {
  const auto* const unused = std::find(areas_.begin(), areas_.end(), 0);
  if (unused == areas_.end()) return 0;
  const auto area = static_cast<size_t>(unused - areas_.begin());
  const BlockIndex index = blocks_.take({area * stride_, area_sizes_[kind_of(set)]}, set);
  if (index == 0) return 0;
  areas_[area] = 1;
  blocks_[index].mapped = false;
  insert_unmapped(index);
  return index;
}

/// Gives memory to the first units of a block that cover `size` bytes, and joins them with the free blocks
/// around them. False when there is none: nothing changed.
bool ExpandableHeap::map(BlockIndex index, Size size) noexcept {
  const Range whole = blocks_[index].range;
  const Size mapped = std::min(round_up(size, units_[kind_of(blocks_[index].set)]), whole.size);
  BlockIndex rest = 0;
  if (mapped < whole.size && !blocks_.reserve(1)) return false;
  if (!arena_->commit({whole.begin, mapped})) return false;
  erase_unmapped(index);
  if (mapped < whole.size) {
    rest = blocks_.split(index, mapped);  // as yet without memory, like the whole
    insert_unmapped(rest);
  }
  blocks_[index].mapped = true;
  merge(index);
  insert_free(index);
  hold(blocks_[index].set, mapped);
  ++counts_.num_device_alloc;
  return true;
}

/// Takes the memory of all units that lie in a free block as a whole.
void ExpandableHeap::unmap(BlockIndex index) noexcept {
  const Range whole = blocks_[index].range;
  const std::uint32_t set = blocks_[index].set;
  const Size unit = units_[kind_of(set)];
  const Offset area = round_down(whole.begin, stride_);
  const Offset begin = area + round_up(whole.begin - area, unit);
  const Offset end = area + round_down(whole.end() - area, unit);
  if (begin >= end || !blocks_.reserve(2)) return;
  arena_->decommit({begin, end - begin});

  erase_free(index);
  if (begin != whole.begin) {
    const BlockIndex inner = blocks_.split(index, begin - whole.begin);
    blocks_.swap_numbers(index, inner);
    insert_free(index);
    index = inner;
  }
  if (end != whole.end()) insert_free(blocks_.split(index, end - begin));
  blocks_[index].mapped = false;
  const auto absorb = [&](BlockIndex other) {
    if (other == 0 || blocks_[other].mapped) return;
    erase_unmapped(other);
    blocks_.absorb(index, other);
  };
  absorb(blocks_[index].before);
  absorb(blocks_[index].after);
  let_go(set, end - begin);
  ++counts_.num_device_free;
  if (blocks_[index].is_whole_segment()) {
    areas_[static_cast<size_t>(area / stride_)] = 0;
    blocks_.give_back(index);
  } else {
    insert_unmapped(index);
  }
}

void ExpandableHeap::release_set(std::uint32_t set) noexcept {
  for (BlockIndex index = sets_[set].free.first(blocks_); index != 0;) {
    // What unmapping leaves of a block is smaller than the block: it is not met again.
    const BlockIndex next = sets_[set].free.next(blocks_, index);
    unmap(index);
    index = next;
  }
}

Offset ExpandableHeap::restore(bool small, StreamId stream, std::span<const Range> memory,
                               std::span<const RestoredObject> objects, PoolId pool) noexcept {
  const std::uint32_t owner = find_owner(pool);
  const std::uint32_t set = ok() && (pool == 0 || owner != 0) ? set_of(pool_of(owner, small), stream) : 0;
  if (set == 0 || memory.empty()) return kNoOffset;
  const Size size = area_sizes_[kind_of(set)];
  const auto within = [](std::span<const RestoredObject> left, Range range) {  // how many of them begin in it
    size_t count = 0;
    while (count < left.size() && left[count].block.begin < range.end()) ++count;
    return left.first(count);
  };
  std::span<const RestoredObject> left = objects;
  for (size_t i = 0; i < memory.size(); ++i) {
    const Range range = memory[i];
    if ((range.begin | range.size) % arena_->granule() != 0 || range.begin > size ||
        range.size > size - range.begin || (i > 0 && range.begin <= memory[i - 1].end()) ||
        !can_hold(range, within(left, range))) {
      return kNoOffset;
    }
    left = left.subspan(within(left, range).size());
  }
  if (!left.empty() || !blocks_.reserve(2 * (objects.size() + memory.size()) + 2) ||
      !blocks_.reserve_live(objects.size())) {
    return kNoOffset;
  }
  BlockIndex index = open_area(set);
  if (index == 0) return kNoOffset;
  const Offset area = blocks_[index].range.begin;
  erase_unmapped(index);
  for (size_t i = 0; i < memory.size(); ++i) {
    if (arena_->commit({area + memory[i].begin, memory[i].size})) continue;
    while (i-- > 0) arena_->decommit({area + memory[i].begin, memory[i].size});
    areas_[static_cast<size_t>(area / stride_)] = 0;
    blocks_.give_back(index);
    return kNoOffset;
  }
  left = objects;
  for (const Range& range : memory) {
    if (const Offset begin = area + range.begin; begin != blocks_[index].range.begin) {
      const BlockIndex rest = blocks_.split(index, begin - blocks_[index].range.begin);
      insert_unmapped(index);
      index = rest;
    }
    const BlockIndex rest = range.size < blocks_[index].range.size ? blocks_.split(index, range.size) : 0;
    blocks_[index].mapped = true;
    hold(set, range.size);
    const std::span<const RestoredObject> here = within(left, range);
    place(index, area, here);
    left = left.subspan(here.size());
    index = rest;
  }
  if (index != 0) insert_unmapped(index);
  return area;
}

// --- blocks without memory, in the order of addresses: few, and looked at one by one anyway ---

void ExpandableHeap::insert_unmapped(BlockIndex index) noexcept {
  Set& set = sets_[blocks_[index].set];
  BlockIndex before = 0, after = set.first_unmapped;
  while (after != 0 && blocks_[after].range.begin < blocks_[index].range.begin) {
    before = after;
    after = blocks_[after].right;
  }
  blocks_[index].left = before;
  blocks_[index].right = after;
  (before != 0 ? blocks_[before].right : set.first_unmapped) = index;
  if (after != 0) blocks_[after].left = index;
}

void ExpandableHeap::erase_unmapped(BlockIndex index) noexcept {
  const CachedBlock& block = blocks_[index];
  (block.left != 0 ? blocks_[block.left].right : sets_[block.set].first_unmapped) = block.right;
  if (block.right != 0) blocks_[block.right].left = block.left;
}

}  // namespace memoir
