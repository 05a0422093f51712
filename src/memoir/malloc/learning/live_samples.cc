// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/learning/live_samples.h"

#include <algorithm>

#include "memoir/base/site.h"

#define MEMOIR_EXPORT __attribute__((visibility("default"), used))

extern "C" {
MEMOIR_EXPORT constinit memoir::malloc_::SiteFigures memoir_malloc_sites{};
}

namespace memoir::malloc_ {

bool LiveSamples::start() noexcept {
  const LockGuard guard(lock_);
  return places_.assign(kPlaces, Place{}) && sites_.assign(kSites, Site{});
}

LiveSamples::Place* LiveSamples::set_of(const void* block) noexcept {
  const std::uint64_t mixed = memoir::detail::mix(reinterpret_cast<std::uintptr_t>(block));
  return &places_[mixed % (kPlaces / kWays) * kWays];
}

void LiveSamples::born(const void* block, const void* caller, Size bytes, Size clock) noexcept {
  const LockGuard guard(lock_);
  if (places_.empty()) return;
  Place* const set = set_of(block);
  Place* place = set;
  for (size_t way = 0; way < kWays; ++way) {
    if (set[way].block == nullptr || set[way].block == block) {
      place = &set[way];
      break;
    }
    // Old blocks are what is asked about, and there are fewest of them.
    if (set[way].born_at > place->born_at) place = &set[way];
  }
  *place = {block, reinterpret_cast<std::uintptr_t>(caller), bytes, clock};
}

void LiveSamples::freed(const void* block) noexcept {
  const LockGuard guard(lock_);
  if (places_.empty()) return;
  Place* const set = set_of(block);
  for (size_t way = 0; way < kWays; ++way) {
    if (set[way].block == block) set[way] = Place{};
  }
}

void LiveSamples::publish(SiteFigures& out, Size clock, Size horizon) noexcept {
  const LockGuard guard(lock_);
  if (places_.empty()) return;
  sites_.assign(kSites, Site{});
  for (const Place& place : places_) {
    if (place.block == nullptr) continue;
    const size_t home = memoir::detail::mix(place.caller) % kSites;
    for (size_t step = 0; step < kSites; ++step) {  // where all are taken, what is left is not counted
      Site& site = sites_[(home + step) % kSites];
      if (site.samples != 0 && site.caller != place.caller) continue;
      site.caller = place.caller;
      site.live += place.bytes;
      site.old += clock - place.born_at > horizon ? place.bytes : 0;
      ++site.samples;
      break;
    }
  }
  Site* const end = sites_.end();
  Site* const middle = sites_.begin() + SiteFigures::kMost;
  std::partial_sort(sites_.begin(), middle, end, [](const Site& a, const Site& b) {
    return a.old != b.old ? a.old > b.old : a.live > b.live;
  });
  const std::uint64_t before = out.changes.load(std::memory_order_relaxed);
  out.changes.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::uint64_t count = 0;
  for (const Site* site = sites_.begin(); site != middle && site->samples != 0; ++site, ++count) {
    SiteFigures::Row& row = out.row[count];
    row.caller.store(site->caller, std::memory_order_relaxed);
    row.live.store(site->live, std::memory_order_relaxed);
    row.old.store(site->old, std::memory_order_relaxed);
    row.samples.store(site->samples, std::memory_order_relaxed);
  }
  out.count.store(count, std::memory_order_relaxed);
  out.changes.store(before + 2, std::memory_order_release);
}

}  // namespace memoir::malloc_
