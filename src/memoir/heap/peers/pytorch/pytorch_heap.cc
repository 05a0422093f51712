// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/pytorch/pytorch_heap.h"

namespace memoir {

BlockIndex PyTorchHeap::grow(const Want& want) noexcept {
  if (!is_within_limit(want.segment)) return 0;
  const BlockIndex index = blocks_.take({0, want.segment}, want.set);
  if (index == 0) return 0;
  const Offset begin = segments_->take(want.segment);
  if (begin == kNoOffset) {
    blocks_.give_back(index);
    return 0;
  }
  blocks_[index].range.begin = begin;
  hold(want.set, want.segment);
  ++counts_.num_device_alloc;
  return index;
}

void PyTorchHeap::release_segment(BlockIndex index) noexcept {
  erase_free(index);
  const Range segment = blocks_[index].range;
  segments_->give_back(segment);
  let_go(blocks_[index].set, segment.size);
  ++counts_.num_device_free;
  blocks_.give_back(index);
}

void PyTorchHeap::release_set(std::uint32_t set) noexcept {
  for (BlockIndex index = sets_[set].free.first(blocks_); index != 0;) {
    const BlockIndex next = sets_[set].free.next(blocks_, index);
    if (blocks_[index].is_whole_segment()) release_segment(index);
    index = next;
  }
}

bool PyTorchHeap::restore(Range segment, StreamId stream, std::span<const RestoredObject> objects,
                          PoolId pool) noexcept {
  const std::uint32_t owner = find_owner(pool);
  if (!ok() || !can_hold(segment, objects) || (pool != 0 && owner == 0)) return false;
  // Only a small segment has this size: others are of 10 MiB at least.
  const bool small = segment.size == PyTorchRounding::kSmallSegment;
  const std::uint32_t set = set_of(pool_of(owner, small), stream);
  if (set == 0 || !blocks_.reserve(2 * objects.size() + 1) || !blocks_.reserve_live(objects.size())) {
    return false;
  }
  place(blocks_.take(segment, set), 0, objects);
  hold(set, segment.size);
  return true;
}

}  // namespace memoir
