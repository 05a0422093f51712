// SPDX-License-Identifier: Apache-2.0
//
// When a thread's next sample is due, and how far apart samples are: what memoir's malloc and its simulation
// share of it. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "memoir/base/units.h"
#include "memoir/predict/lifetime_learner.h"

namespace memoir {

/// Bytes between samples, on average: what the learner asks for, or more where samples would take too much
/// time.
class SamplePace {
 public:
  /// `now`, here and below: nanoseconds of one clock.
  void start(std::uint64_t now, const LifetimeLearner& learner) noexcept {
    looked_at_ = now;
    set(learner);
  }
  /// A sample was taken; `now()` is asked for seldom.
  template <class Now>
  void sampled(const LifetimeLearner& learner, Now now) noexcept {
    if (++since_look_ == kBetweenLooks) look(now());
    set(learner);
  }
  Size every() const noexcept { return every_; }

 private:
  // A sample takes about a microsecond where threads wait for each other's lines, so this many take 2 % of a
  // core. A program that allocates some GB a second has more samples in a horizon than the learner needs.
  static constexpr std::uint64_t kMostInSecond = 20000, kSecond = 1000000000;
  static constexpr unsigned kBetweenLooks = 256, kMostDoublings = 5;
  static constexpr Size kLeastInHorizon = 64;

  void look(std::uint64_t now) noexcept {
    since_look_ = 0;
    const std::uint64_t took = now - std::exchange(looked_at_, now);
    constexpr std::uint64_t kLeast = kBetweenLooks * kSecond / kMostInSecond;
    if (took < kLeast) slower_ = std::min(slower_ + 1, kMostDoublings);
    else if (took > 4 * kLeast && slower_ > 0) --slower_;
  }
  void set(const LifetimeLearner& learner) noexcept {
    const Size least = learner.sample_every();
    every_ = std::clamp(least << slower_, least, std::max(least, learner.horizon() / kLeastInHorizon));
  }

  unsigned since_look_ = 0, slower_ = 0;  // samples; the learner's interval is doubled so often
  std::uint64_t looked_at_ = 0;
  Size every_ = 0;
};

/// Of one thread: how many bytes are left until its next sample.
class SampleCountdown {
 public:
  /// So many bytes more were allocated, by the thread of that number. True: a sample is due, and the next one
  /// comes `every` bytes later on average, at an exponential distance.
  bool count_down(Size bytes, std::uint32_t thread, Size every) noexcept {
    if (random_ == 0) {
      random_ = (std::uint64_t{thread} + 1) * 0x9e3779b97f4a7c15ull;
    } else if (bytes < left_) {
      left_ -= bytes;
      return false;
    }
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    left_ = interval(random_ * 2685821657736338717ull, every);
    return true;
  }
  Size left() const noexcept { return left_; }

 private:
  static Size interval(std::uint64_t random, Size every) noexcept {
    // -log2(u) for u in (0, 1]: the leading zeros are its whole part, the bits after the first one its
    // fraction, nearly.
    const int zeros = std::countl_zero(random | 1);
    const double mantissa = static_cast<double>((random << zeros) >> 11) * 0x1p-53;  // [1/2, 1)
    const double minus_log2 = zeros + 2 * (1 - mantissa);
    constexpr double kLn2 = 0.6931471805599453;
    return static_cast<Size>(minus_log2 * kLn2 * static_cast<double>(every));
  }

  Size left_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace memoir
