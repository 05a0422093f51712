// SPDX-License-Identifier: Apache-2.0
//
// The rungs that PyTorch's allocator climbs when no cached block fits, in the order of torch 2.13.
#include <algorithm>

#include "memoir/heap/peers/pytorch/pytorch_pools.h"

namespace memoir {

BlockIndex PyTorchPools::climb(const Want& want, StreamId stream) noexcept {
  if (collector_ != nullptr) {
    const std::uint64_t before = frees_;
    {
      const PhaseTable::Timer timer(phases_, kCallbacks);
      collector_->collect(false);
    }
    if (frees_ != before) {
      if (const BlockIndex index = search(want); index != 0) return index;
    }
  }
  if (ages_) collect_garbage();

  const auto take = [&] {
    const PhaseTable::Timer timer(phases_, kDevice);
    return grow(want);
  };
  BlockIndex index = take();
  if (index == 0) index = search_lent_pools(want, stream);
  if (index == 0 && release_oversize(want)) index = take();
  if (index == 0 && may_release(stream)) {
    await_pending();
    // What the wait freed is in the sets now; PyTorch does not look again, and asks the device.
    if (options_.search_after_sync) index = search(want);
    if (index == 0) {
      release_default_pools();
      release_idle_pools(0);
      ++counts_.num_alloc_retries;
      index = take();
    }
  }
  return index;
}

/// A free block of a private pool that is lent out, for a request to the default pool.
BlockIndex PyTorchPools::search_lent_pools(const Want& want, StreamId stream) noexcept {
  if (sets_[want.set].pool >= 2) return 0;
  const PhaseTable::Timer timer(phases_, kLent);
  for (std::uint32_t owner = 1; owner < owners_.size(); ++owner) {
    if (!owners_[owner].exists || !owners_[owner].lent || owners_[owner].uses == 0) continue;
    // This search is for plain segments: it passes over blocks of expandable areas, that is, over all of
    // them.
    if (expandable_) continue;
    Want lent = want;
    lent.set = set_of(pool_of(owner, is_small(sets_[want.set])), stream);
    if (lent.set == 0) continue;
    if (const BlockIndex index = search(lent); index != 0) return index;
  }
  return 0;
}

/// With max_split_size: gives back one oversize block that is large enough, else the largest ones until they
/// come to the size. False when they do not.
bool PyTorchPools::release_oversize(const Want& want) noexcept {
  if (options_.max_split_size == PyTorchOptions::kNoLimit || expandable_) return false;
  const PhaseTable::Timer timer(phases_, kOversize);
  const FreeBlockSet& free = sets_[want.set].free;
  const Size size = want.size < options_.max_split_size ? options_.max_split_size : want.size;
  if (const BlockIndex index = free.best_fit(blocks_, size); index != 0) {
    release_segment(index);
    return true;
  }
  Size released = 0;
  for (BlockIndex index = free.last(blocks_); index != 0 && released < size;) {
    if (blocks_[index].range.size < options_.max_split_size) break;
    const BlockIndex smaller = free.previous(blocks_, index);
    released += blocks_[index].range.size;
    release_segment(index);
    index = smaller;
  }
  return released >= size;
}

/// Above the threshold: gives back whole segments that were not used for as many searches as the average of
/// them, and again, until the threshold is reached or none is left.
void PyTorchPools::collect_garbage() noexcept {
  const auto threshold =
      static_cast<Size>(options_.garbage_collection_threshold * static_cast<double>(allowed_));
  if (reserved_ <= threshold) return;
  const PhaseTable::Timer timer(phases_, kOld);
  const Size target = reserved_ - threshold;
  const std::uint32_t pool = pool_of(0, false);
  const auto age = [&](BlockIndex index) { return searches_[pool] - blocks_[index].inserted; };
  std::uint64_t ages = 0, count = 0;
  const auto for_each_segment = [&](const auto& visit) {
    for (std::uint32_t set = next_set(pool, 0); set != 0; set = next_set(pool, set)) {
      for (BlockIndex index = sets_[set].free.first(blocks_); index != 0;) {
        const BlockIndex next = sets_[set].free.next(blocks_, index);
        if (blocks_[index].is_whole_segment()) visit(index);
        index = next;
      }
    }
  };
  for_each_segment([&](BlockIndex index) {
    ages += age(index);
    ++count;
  });
  Size released = 0;
  for (bool any = true; released < target && any && count > 0;) {
    const double average = static_cast<double>(ages) / static_cast<double>(count);
    any = false;
    for_each_segment([&](BlockIndex index) {
      if (expandable_ || static_cast<double>(age(index)) < average) return;
      any = true;
      released += blocks_[index].range.size;
      ages -= age(index);
      --count;
      release_segment(index);
    });
  }
}

// --- the last rung, and empty_cache() ---

void PyTorchPools::trim_on(StreamId stream) noexcept {
  if (!ok_) return;
  if (may_release(stream)) {
    await_pending();
    release_default_pools();
  } else if (!options_.keep_under_mempool) {
    return;
  }
  release_idle_pools(0);
}

void PyTorchPools::trim_pool(PoolId pool) noexcept {
  if (pool_uses(pool) != 0 || find_owner(pool) == 0) return;
  await_pending();
  release_idle_pools(pool);
}

bool PyTorchPools::is_allocated_to(std::uint32_t owner) const noexcept {
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const Capture& capture) { return capture.owner == owner; });
}

/// Whether pending frees may be awaited and the default pools given back, in a call on that stream.
bool PyTorchPools::may_release(StreamId stream) const noexcept {
  if (options_.keep_under_mempool) return captures_.empty();
  return std::none_of(captures_.begin(), captures_.end(), [&](const Capture& capture) {
    const PoolFilter& filter = capture.filter;
    return capture.graph && (filter.takes == nullptr || filter.takes(filter.context, stream));
  });
}

void PyTorchPools::await_pending() noexcept {
  const PhaseTable::Timer timer(phases_, kSync);
  ++counts_.num_sync_all_streams;
  if (collector_ != nullptr) collector_->collect(true);
}

void PyTorchPools::release_default_pools() noexcept {
  const PhaseTable::Timer timer(phases_, kRelease);
  release_pool_sets(pool_of(0, false));
  release_pool_sets(pool_of(0, true));
}

/// Gives back what is unused of the private pools without a use, of one or (0) of all; forgets those that
/// hold nothing any more.
void PyTorchPools::release_idle_pools(PoolId only) noexcept {
  const PhaseTable::Timer timer(phases_, kRelease);
  for (std::uint32_t owner = 1; owner < owners_.size(); ++owner) {
    if (!owners_[owner].exists || owners_[owner].uses != 0) continue;
    if (only != 0 && owners_[owner].id != only) continue;
    if (is_allocated_to(owner)) continue;
    release_pool_sets(pool_of(owner, true));
    release_pool_sets(pool_of(owner, false));
    if (owners_[owner].reserved == 0) owners_[owner].exists = false;
  }
}

void PyTorchPools::release_pool_sets(std::uint32_t pool) noexcept {
  for (std::uint32_t set = next_set(pool, 0); set != 0; set = next_set(pool, set)) release_set(set);
}

/// The pool's set that follows in the order of streams, the first after 0; 0 at the end.
std::uint32_t PyTorchPools::next_set(std::uint32_t pool, std::uint32_t set) const noexcept {
  std::uint32_t next = 0;
  for (std::uint32_t other = 1; other < sets_.size(); ++other) {
    if (sets_[other].pool != pool || (set != 0 && sets_[other].stream <= sets_[set].stream)) continue;
    if (next == 0 || sets_[other].stream < sets_[next].stream) next = other;
  }
  return next;
}

}  // namespace memoir
