// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/learning/live_learner.h"

#include <time.h>

#include "memoir/base/site.h"

namespace memoir::malloc_ {

namespace {

std::uint64_t monotonic() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

bool LiveLearner::start(const LearnerOptions& options) noexcept {
  const LockGuard guard(lock_);
  if (active()) return true;
  if (!places_.assign(kPlaces, Place{}) || !learner_.start(options)) return false;
  pace_.start(monotonic(), learner_);
  every_.store(pace_.every(), std::memory_order_relaxed);
  active_.store(true, std::memory_order_release);
  return true;
}

LiveLearner::Place* LiveLearner::set_of(const void* block) noexcept {
  return &places_[memoir::detail::mix(reinterpret_cast<std::uintptr_t>(block)) % (kPlaces / kWays) * kWays];
}

void LiveLearner::born(const void* block, ContextKey key, Size clock, Size held) noexcept {
  const LockGuard guard(lock_);
  learner_.advance(clock, held);
  pace_.sampled(learner_, monotonic);
  every_.store(pace_.every(), std::memory_order_relaxed);
  Place* const set = set_of(block);
  for (size_t way = 0; way < kWays; ++way) {
    Place& place = set[way];
    if (place.block != nullptr && learner_.open(place.sample, place.born_at)) continue;
    const LifetimeLearner::Sample sample = learner_.born(key);
    if (sample != LifetimeLearner::kNoSample) place = {block, learner_.clock(), sample};
    return;
  }
}

void LiveLearner::freed(const void* block, Size clock, Size held) noexcept {
  const LockGuard guard(lock_);
  learner_.advance(clock, held);
  Place* const set = set_of(block);
  for (size_t way = 0; way < kWays; ++way) {
    if (set[way].block != block) continue;
    learner_.freed(set[way].sample, set[way].born_at);
    set[way].block = nullptr;
  }
}

void LiveLearner::advance(Size clock, Size held) noexcept {
  const LockGuard guard(lock_);
  learner_.advance(clock, held);
}

Size LiveLearner::weight(Size size) const noexcept {
  // size / (1 - exp(-size / every)): the size over the chance to be sampled. Its series, where that is short.
  const Size every = this->every();
  if (every == 0 || 2 * size > 5 * every) return size;
  const double x = static_cast<double>(size) / static_cast<double>(every);
  return static_cast<Size>((1 + x / 2 + x * x / 12) * static_cast<double>(every));
}

Size LiveLearner::horizon() noexcept {
  const LockGuard guard(lock_);
  return learner_.horizon();
}

bool LiveLearner::expect(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept {
  const LockGuard guard(lock_);
  return learner_.expect(key, predicted, share, samples);
}

LifetimeLearner::Counts LiveLearner::counts() noexcept {
  const LockGuard guard(lock_);
  return learner_.counts();
}

double LiveLearner::right_by_context() noexcept {
  const LockGuard guard(lock_);
  return learner_.table().right_by_context();
}

size_t LiveLearner::long_contexts() noexcept {
  const LockGuard guard(lock_);
  return learner_.table().long_contexts();
}

}  // namespace memoir::malloc_
