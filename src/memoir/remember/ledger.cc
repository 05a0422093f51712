// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/ledger.h"

#include <algorithm>
#include <mutex>

namespace memoir {

namespace {

constexpr double kWeight = 0.125;   // of the latest pass in the mean
constexpr double kOfPause = 0.002;  // a look at one call is at most this share of the pause before it, then
                                    // pauses are long enough

}  // namespace

void Ledger::learned(Nanoseconds spent) noexcept {
  const std::lock_guard lock(mutex_);
  figures_.learning += spent;
  debt_ += static_cast<double>(spent) * caution_;
}

void Ledger::proved(bool useful) noexcept {
  const std::lock_guard lock(mutex_);
  ++(useful ? useful_ : useless_);
}

void Ledger::called(Nanoseconds looks, Nanoseconds pass) noexcept {
  const std::lock_guard lock(mutex_);
  if (paused_) end_pause();
  figures_.looks += looks;
  figures_.passes += pass;
  const auto spent = static_cast<double>(looks), took = static_cast<double>(pass);
  mean_ = mean_ == 0 ? took : mean_ + kWeight * (took - mean_);
  // One look that took longer than a pass may have been interrupted; many of them add up all the same.
  debt_ = std::max(debt_ + std::min(spent, took) - kShare * took, 0.0);
  const bool overdrawn = debt_ > kAhead * mean_;
  if (overdrawn && may_learn()) {
    may_learn_.store(false, std::memory_order_relaxed);
  } else if (debt_ == 0 && !may_learn()) {
    if (4 * useful_ < useless_ || useful_ == 0) caution_ = std::min(2 * caution_, kMostCaution);
    else if (useful_ >= useless_) caution_ = std::max(caution_ / 2, 1);
    useful_ = useless_ = 0;
    may_learn_.store(true, std::memory_order_relaxed);
  }
  if (spent <= kShare * took) {
    pause_ /= 2;
  } else if (overdrawn || pause_ > 0) {
    const double enough = spent / (kOfPause * std::max(mean_, 1.0));
    const auto longest = static_cast<std::int64_t>(std::clamp(enough, 2.0, 1e9));
    pause_ = std::min(std::max<std::int64_t>(2 * pause_, 2), longest);
    paused_ = true;
    left_.store(pause_, std::memory_order_relaxed);
  }
}

/// The calls of the pause took as long as those before it.
void Ledger::end_pause() noexcept {
  paused_ = false;
  const double took = static_cast<double>(pause_) * mean_;
  figures_.skipped += static_cast<std::uint64_t>(pause_);
  figures_.passes += static_cast<Nanoseconds>(took);
  debt_ = std::max(debt_ - kShare * took, 0.0);
}

Ledger::Figures Ledger::figures() const noexcept {
  const std::lock_guard lock(mutex_);
  Figures figures = figures_;
  if (paused_) {  // so far
    const std::int64_t passed =
        pause_ - std::clamp<std::int64_t>(left_.load(std::memory_order_relaxed), 0, pause_);
    figures.skipped += static_cast<std::uint64_t>(passed);
    figures.passes += static_cast<Nanoseconds>(static_cast<double>(passed) * mean_);
  }
  return figures;
}

}  // namespace memoir
