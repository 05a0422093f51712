// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/pytorch/cached_blocks.h"

#include "memoir/base/site.h"

namespace memoir {

BlockIndex CachedBlocks::take(Range range, std::uint32_t set) noexcept {
  BlockIndex index = unused_;
  if (index != 0) {
    unused_ = records_[index].after;
  } else {
    index = static_cast<BlockIndex>(records_.size());
    CachedBlock fresh;
    fresh.priority = static_cast<std::uint32_t>(detail::mix(index));  // the same in every run
    if (!records_.push_back(fresh)) return 0;
  }
  CachedBlock& block = records_[index];
  block.range = range;
  block.asked = 0;
  block.before = block.after = 0;
  block.set = set;
  block.number = ++taken_;
  block.mapped = true;
  return index;
}

void CachedBlocks::give_back(BlockIndex index) noexcept {
  records_[index].range = {};
  records_[index].asked = 0;
  records_[index].after = unused_;
  unused_ = index;
}

void CachedBlocks::insert_live(BlockIndex index) noexcept {
  ++live_;
  put({hash_of(records_[index].range.begin), index});
}

void CachedBlocks::put(Slot slot) noexcept {
  const size_t mask = slots_.size() - 1;
  size_t at = home_of(slot.hash);
  while (slots_[at].index != 0) at = (at + 1) & mask;
  slots_[at] = slot;
}

size_t CachedBlocks::find_slot(Offset offset) const noexcept {
  if (!ok_ || offset % 512 != 0) return kNoSlot;
  const std::uint32_t hash = hash_of(offset);
  const size_t mask = slots_.size() - 1;
  for (size_t at = home_of(hash); slots_[at].index != 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && records_[slots_[at].index].range.begin == offset) return at;
  }
  return kNoSlot;
}

BlockIndex CachedBlocks::take_live(Offset offset) noexcept {
  size_t at = find_slot(offset);
  if (at == kNoSlot) return 0;
  const BlockIndex index = slots_[at].index;
  const size_t mask = slots_.size() - 1;
  for (size_t next = (at + 1) & mask; slots_[next].index != 0; next = (next + 1) & mask) {
    // What lies behind the gap moves into it, unless its search begins behind the gap as well.
    if (((next - home_of(slots_[next].hash)) & mask) < ((next - at) & mask)) continue;
    slots_[at] = slots_[next];
    at = next;
  }
  slots_[at] = {};
  --live_;
  return index;
}

bool CachedBlocks::grow() noexcept {
  MetadataArray<Slot> old;
  if (!old.assign(2 * slots_.size(), {})) return false;
  std::swap(old, slots_);
  --shift_;
  for (const Slot& slot : old) {
    if (slot.index != 0) put(slot);
  }
  return true;
}

void CachedBlocks::absorb(BlockIndex index, BlockIndex absorbed) noexcept {
  CachedBlock& block = records_[index];
  const CachedBlock& other = records_[absorbed];
  if (block.before == absorbed) {
    block.range.begin = other.range.begin;
    block.before = other.before;
    if (block.before != 0) records_[block.before].after = index;
  } else {
    block.after = other.after;
    if (block.after != 0) records_[block.after].before = index;
  }
  block.range.size += other.range.size;
  give_back(absorbed);
}

BlockIndex CachedBlocks::split(BlockIndex index, Size size) noexcept {
  const Range whole = records_[index].range;
  const BlockIndex rest = take({whole.begin + size, whole.size - size}, records_[index].set);
  if (rest == 0) return 0;
  CachedBlock& first = records_[index];
  CachedBlock& second = records_[rest];
  first.range.size = size;
  second.mapped = first.mapped;
  second.before = index;
  second.after = first.after;
  if (first.after != 0) records_[first.after].before = rest;
  first.after = rest;
  return rest;
}

}  // namespace memoir
