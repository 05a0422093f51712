// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/learning/live_learner.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "memoir/base/site.h"

namespace memoir::malloc_ {

namespace {

// A sample takes about a microsecond where threads wait for each other's lines, so this many take 2 % of a
// core. A program that allocates some GB a second has more samples in a horizon than the learner needs.
constexpr std::uint64_t kMostInSecond = 20000, kSecond = 1000000000;
constexpr unsigned kBetweenLooks = 256, kMostDoublings = 5;
constexpr Size kLeastInHorizon = 64;

std::uint64_t monotonic() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

bool LiveLearner::start(const LearnerOptions& options) noexcept {
  const LockGuard guard(lock_);
  if (active()) return true;
  if (!places_.assign(kPlaces, Place{}) || !learner_.start(options)) return false;
  looked_at_ = monotonic();
  set_interval();
  active_.store(true, std::memory_order_release);
  return true;
}

LiveLearner::Place* LiveLearner::set_of(const void* block) noexcept {
  return &places_[memoir::detail::mix(reinterpret_cast<std::uintptr_t>(block)) % (kPlaces / kWays) * kWays];
}

void LiveLearner::set_interval() noexcept {
  const Size least = learner_.sample_every();
  every_.store(std::clamp(least << slower_, least, std::max(least, learner_.horizon() / kLeastInHorizon)),
               std::memory_order_relaxed);
}

void LiveLearner::look_at_clock() noexcept {
  since_look_ = 0;
  const std::uint64_t now = monotonic(), took = now - std::exchange(looked_at_, now);
  constexpr std::uint64_t kLeast = kBetweenLooks * kSecond / kMostInSecond;
  if (took < kLeast) slower_ = std::min(slower_ + 1, kMostDoublings);
  else if (took > 4 * kLeast && slower_ > 0) --slower_;
}

void LiveLearner::born(const void* block, ContextKey key, Size clock, Size held) noexcept {
  const LockGuard guard(lock_);
  learner_.advance(clock, held);
  if (++since_look_ == kBetweenLooks) look_at_clock();
  set_interval();
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

Size LiveLearner::interval(std::uint64_t random) const noexcept {
  // -log2(u) for u in (0, 1]: the leading zeros are its whole part, the bits after the first one its
  // fraction, nearly.
  const int zeros = std::countl_zero(random | 1);
  const double mantissa = static_cast<double>((random << zeros) >> 11) * 0x1p-53;  // [1/2, 1)
  const double minus_log2 = zeros + 2 * (1 - mantissa);
  constexpr double kLn2 = 0.6931471805599453;
  return static_cast<Size>(minus_log2 * kLn2 * static_cast<double>(every_.load(std::memory_order_relaxed)));
}

Size LiveLearner::weight(Size size) const noexcept {
  // size / (1 - exp(-size / every)): the size over the chance to be sampled. Its series, where that is short.
  const Size every = every_.load(std::memory_order_relaxed);
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
