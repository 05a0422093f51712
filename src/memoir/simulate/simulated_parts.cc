// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/simulated_parts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "memoir/base/error.h"

namespace memoir {

SimulatedParts::SimulatedParts(SimulatedHeap& owner, std::uint32_t pool, StreamId stream,
                               const RestoredState* start)
    : owner_(owner),
      pool_(pool),
      stream_(stream),
      workload_(owner.by_pool_.empty() ? owner.workload_ : owner.by_pool_[pool]),
      start_(start) {
  const FinalizerSettings& settings = owner.policy_.finalizers;
  if (settings.delay == 0) return;
  finalizers_ =
      std::make_unique<FinalizerModel>(FinalizerOptions{.delay = settings.delay, .young = settings.young});
}

/// Room for whatever holes a heap leaves: many times the most bytes live.
Size SimulatedParts::room() const noexcept {
  return 16 * std::min(std::max(workload_.peak_live(), 4 * kMiB), Size{1} << 48);
}

/// With a restored state the addresses behind an area are more than any hole in it.
Size SimulatedParts::likely_device_memory() const {
  Size likely = room() / 4;
  if (start_ != nullptr) {
    for (const RestoredArea& area : start_->areas) likely = std::max(likely, 2 * area.span);
  }
  return likely;
}

/// And some to spare.
size_t SimulatedParts::expandable_areas() const {
  size_t areas = 2 * workload_.streams() + 2;
  if (owner_.workload_.pools() > 1) {
    std::set<std::pair<std::uint32_t, StreamId>> users;
    for (const Workload::Object& object : owner_.workload_.objects())
      users.emplace(object.pool, object.stream);
    areas += 2 * users.size();
  }
  return start_ == nullptr ? areas : areas + start_->areas.size();
}

/// A heap that keeps a record for each page works by bytes: what it would take is bounded by the events.
void SimulatedParts::check_pages() const {
  if (owner_.policy_.traits.lifetimes != LifetimeScale::kTime) return;
  constexpr Size kMost = Size{1} << 22, kForEach = 64;
  const Size page = owner_.policy_.traits.page;
  Size pages = 0;
  for (const Workload::Object& object : workload_.objects()) pages += object.size / page;
  if (pages <= kMost + kForEach * workload_.objects().size()) return;
  throw Error("it keeps a record for each page of " + bytes_setting(page) + ", and the " +
              std::to_string(workload_.objects().size()) + " objects of this trace fill " +
              std::to_string(pages) + " pages: choose other policies");
}

Arena& SimulatedParts::arena(Size capacity) {
  check_pages();
  const MappedOptions& mapped = owner_.policy_.mapped;
  const Size page = owner_.policy_.traits.page;
  const Size granule = mapped.granule != 0 ? mapped.granule : page != 0 ? page : 2 * kMiB;
  if (!is_power_of_two(granule) || granule < 512 || granule > kGiB)
    throw Error("granule=" + bytes_setting(granule) + ": it must be a power of two from 512 bytes to 1 GiB");
  if (mapped.piece != 0 && !is_power_of_two(mapped.piece))
    throw Error("piece=" + bytes_setting(mapped.piece) + ": it must be a power of two");
  if (mapped.addresses != 0 && owner_.cap_ != kNoCap)  // the cap is the device's memory
    capacity = std::clamp<Size>(mapped.addresses, 1, 1024) * owner_.cap_;
  const HeldWatch watch{owner_.held_, std::uint64_t{pool_} << 32 | stream_};
  if (watch.log != nullptr) watch.log->set_mapped();
  mapped_ = std::make_unique<MappedMemory>(
      std::max(capacity == 0 ? room() : capacity, granule),
      MappedMemoryOptions{.granule = granule, .piece = mapped.piece, .keeps = keeps(), .watch = watch},
      owner_.memory_, &owner_.clock_);
  if (!mapped_->ok()) throw Error("the simulated device's addresses would not fit into 64 bits");
  if (start_ == nullptr) return *mapped_;
  restored_arena_ = std::make_unique<RestoredArena>(*mapped_);
  return *restored_arena_;
}

Segments& SimulatedParts::segments() {
  for (const auto& place : owner_.places_) {
    if (place->pool == pool_ && !mapped_) segments_ = place->parts->segments_;
  }
  has_own_segments_ = segments_ == nullptr;
  if (has_own_segments_) {
    segments_ = std::make_shared<SimSegments>(
        owner_.memory_, SimSegmentsOptions{.shift = mapped_ ? mapped_->capacity() : 0,
                                           .keeps = keeps(),
                                           .clock = &owner_.clock_,
                                           .watch = start_ == nullptr ? watch() : HeldWatch{}});
  }
  if (!segments_->ok()) throw Error("no memory for the simulated device's bookkeeping");
  if (start_ == nullptr) return *segments_;
  restored_segments_ = std::make_unique<RestoredSegments>(*segments_, workload_, watch());
  return *restored_segments_;
}

void SimulatedParts::add_pools(PyTorchPools& heap) const {
  for (PoolId pool = 1; pool < owner_.workload_.pools(); ++pool) {
    if (!heap.add_pool_use(pool)) throw Error("no memory for the bookkeeping of private pools");
  }
}

void SimulatedParts::prepare(PyTorchHeap& heap) {
  add_pools(heap);
  if (restored_segments_) restored_segments_->restore(heap, *start_);
}

void SimulatedParts::prepare(ExpandableHeap& heap) {
  add_pools(heap);
  if (restored_arena_) restored_arena_->restore(heap, *start_);
}

Size SimulatedParts::reserved() const noexcept {
  return (segments_ && has_own_segments_ ? segments_->held() : 0) + (mapped_ ? mapped_->committed() : 0);
}

DeviceCalls SimulatedParts::calls() const noexcept {
  DeviceCalls calls = segments_ && has_own_segments_ ? segments_->calls() : DeviceCalls{};
  if (!mapped_) return calls;
  const MappedCalls& mapped = mapped_->calls();
  calls.commits += mapped.commits, calls.decommits += mapped.decommits, calls.refusals += mapped.refusals;
  calls.creates += mapped.creates;
  calls.maps += mapped.maps, calls.unmaps += mapped.unmaps, calls.accesses += mapped.accesses;
  return calls;
}

RestoredDevice* SimulatedParts::restored() noexcept {
  if (restored_segments_) return restored_segments_.get();
  return restored_arena_.get();
}

}  // namespace memoir
