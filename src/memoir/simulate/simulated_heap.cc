// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/simulated_heap.h"

#include <algorithm>
#include <set>
#include <utility>

#include "memoir/base/error.h"
#include "memoir/policy/policy_text.h"
#include "memoir/simulate/finalized_heap.h"
#include "memoir/simulate/lifetime_classes.h"
#include "memoir/simulate/private_pool_heap.h"
#include "memoir/simulate/simulated_parts.h"

namespace memoir {

SimulatedHeap::SimulatedHeap(Policy policy, const Workload& workload, Size cap, bool with_phases)
    : policy_(std::move(policy)), workload_(workload), cap_(cap), with_phases_(with_phases) {
  memory_.limit = cap;
  if (policy_.traits.lifetimes != LifetimeScale::kNone) lifetimes_ = lifetime_classes(workload, policy_);
  if (policy_.traits.pytorch) return;
  if (workload.pools() > 1) by_pool_ = workload.by_pool();
  is_alone_ = workload.pools() == 1 && (policy_.traits.sees_streams || workload.streams() <= 1);
}

SimulatedHeap::~SimulatedHeap() {
  private_.clear();
  for (const auto& place : places_) place->made.heap.reset();
}

SimulatedHeap::Place& SimulatedHeap::place(std::uint32_t pool, StreamId stream) {
  if (policy_.traits.sees_streams) stream = 0;
  if (policy_.traits.pytorch) pool = 0;
  for (const auto& place : places_) {
    if (place->pool == pool && place->stream == stream) return *place;
  }
  auto place = std::make_unique<Place>();
  place->pool = pool;
  place->stream = stream;
  place->parts = std::make_unique<SimulatedParts>(*this, pool, stream, start_);
  place->made = policy_.make(*place->parts);
  if (auto finalizers = place->parts->take_finalizers())
    place->made.heap = std::make_unique<FinalizedHeap>(std::move(finalizers), std::move(place->made.heap));
  due_ = std::min(due_, place->made.heap->tick(now_));
  places_.push_back(std::move(place));
  return *places_.back();
}

Heap& SimulatedHeap::heap(std::uint32_t pool, StreamId stream) {
  return pool != 0 && pytorch_ != nullptr ? *private_[pool - 1] : *place(pool, stream).made.heap;
}

std::uint64_t SimulatedHeap::space(std::uint32_t pool, StreamId stream) {
  return place(pool, stream).parts->space();
}

Heap* SimulatedHeap::find(std::uint32_t pool, StreamId stream) try {
  return &heap(pool, stream);
} catch (const Error& error) {  // its memory cannot be secured
  why_ = error.what();
  return nullptr;
}

bool SimulatedHeap::free(const Workload::Object& object, Offset offset) {
  const StreamClock::Section section(clock_);
  return heap(object.pool, object.stream).free_on(object.freed_on, offset);
}

Request SimulatedHeap::request_of(const Workload::Object& object) const noexcept {
  const auto number = static_cast<size_t>(&object - workload_.objects().data());
  return {.size = object.size,
          .alignment = object.alignment(),
          .site = object.site,
          .stream = object.stream,
          .plain = policy_.traits.plain,
          .thread = object.thread,
          .lifetime = number < lifetimes_.size() ? lifetimes_[number] : Request::kNoLifetime};
}

Offset SimulatedHeap::allocate(const Workload::Object& object) {
  const StreamClock::Section section(clock_);
  Heap* const from = find(object.pool, object.stream);
  if (from == nullptr) {
    reserved_when_refused_ = reserved();
    return kNoOffset;
  }
  const Request request = request_of(object);
  Offset offset = from->allocate(request);
  if (offset != kNoOffset) return offset;
  const Place& place = this->place(object.pool, object.stream);
  reserved_when_refused_ = reserved();
  why_ = place.made.why ? place.made.why() : "";
  memory_.in_need = true;
  offset = climb(*from, request);
  memory_.in_need = false;
  memory_.release_spares();
  return offset;
}

/// What the runtime does for a request that its heap refused.
Offset SimulatedHeap::climb(Heap& from, const Request& request) {
  if (!make_room()) {
    clock_.quiet();
    return kNoOffset;
  }
  Offset offset = from.allocate(request);
  if (offset != kNoOffset) return offset;
  clock_.quiet();
  if ((offset = from.allocate(request)) != kNoOffset) return offset;
  make_room();
  return from.allocate(request);
}

bool SimulatedHeap::make_room() noexcept {
  if (policy_.traits.pytorch) return false;
  for (const auto& place : places_) {
    if (place->pool == 0) place->made.heap->trim();
  }
  return true;
}

void SimulatedHeap::tick_all() noexcept {
  const StreamClock::Section section(clock_);
  due_ = Heap::kNever;
  for (const auto& place : places_) due_ = std::min(due_, place->made.heap->tick(now_));
}

void SimulatedHeap::end_pool(std::uint32_t pool) noexcept {
  if (pytorch_ == nullptr) return;
  pytorch_->release_pool(pool);
  pytorch_->trim_pool(pool);
}

DeviceCalls SimulatedHeap::calls() const noexcept {
  DeviceCalls calls;
  for (const auto& place : places_) calls += place->parts->calls();
  calls.releases = memory_.releases;
  calls.waits = clock_.waits();
  calls.syncs = clock_.quiets();
  calls.takes -= start_calls_.takes;
  calls.commits -= start_calls_.commits;
  calls.creates -= start_calls_.creates;
  calls.maps -= start_calls_.maps;
  calls.accesses -= start_calls_.accesses;
  return calls;
}

Size SimulatedHeap::private_reserved() const noexcept {
  if (pytorch_ != nullptr) return pytorch_->private_reserved();
  Size sum = 0;
  for (const auto& place : places_) {
    if (place->pool != 0) sum += place->parts->reserved();
  }
  return sum;
}

RestoredDevice* SimulatedHeap::restored() noexcept { return places_.front()->parts->restored(); }

bool can_start_from(std::string_view text, const RestoredState& start) {
  if (!choose_policy(text, Substrate::kSimulation).traits.pytorch) return false;
  PolicyText parsed = read_policy_text(text);
  return take_pytorch_settings(parsed).expandable_segments == start.expandable;
}

std::unique_ptr<SimulatedHeap> make_policy(std::string_view text, const Workload& workload, Size cap,
                                           bool with_phases, const RestoredState* start, HeldLog* held) {
  std::unique_ptr<SimulatedHeap> made(
      new SimulatedHeap(choose_policy(text, Substrate::kSimulation), workload, cap, with_phases));
  made->held_ = held;
  if (start != nullptr && can_start_from(text, *start)) {
    if (start->held > cap) {
      throw Error("a cap of " + std::to_string(cap) + " bytes is under the " + std::to_string(start->held) +
                  " bytes of segments that the recording holds at its start; without them (no "
                  "--from-recorded) policies start afresh");
    }
    made->start_ = start;
  }
  SimulatedHeap::Place& first = made->place(0, 0);  // what cannot be shows at once
  made->start_ = nullptr;
  made->start_calls_ = first.parts->calls();
  if (made->restored() == nullptr) made->start_calls_ = {};
  if (first.made.pytorch == nullptr || workload.pools() == 1) return made;
  made->pytorch_ = first.made.pytorch;
  for (PoolId pool = 1; pool < workload.pools(); ++pool) {
    made->private_.push_back(std::make_unique<PrivatePoolHeap>(*made->pytorch_, pool));
  }
  return made;
}

}  // namespace memoir
