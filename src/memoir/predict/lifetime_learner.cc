// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/lifetime_learner.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr double kDecay = 1 - 1.0 / 2048;  // of the counts, per decided sample
constexpr double kEnoughLong = 8;          // long samples before a split is considered
constexpr Size kEnoughDead = 4;  // samples that a model called long and that died, before it is judged
}  // namespace

bool LifetimeLearner::start(const LearnerOptions& options) noexcept {
  options_ = options;
  return ring_.assign(kMostSamples, Record{});
}

Size LifetimeLearner::horizon() const noexcept { return static_cast<Size>(options_.tau * most_held_); }

Size LifetimeLearner::sample_every() const noexcept {
  return std::max(options_.sample_every, horizon() / (kMostSamples / 2));
}

void LifetimeLearner::advance(Size clock, Size held) noexcept {
  if (clock > clock_ && most_held_ > 0) {
    // Halves in four horizons without the heap growing again.
    const double horizons = static_cast<double>(clock - clock_) / (options_.tau * most_held_);
    most_held_ /= 1 + std::min(horizons, 64.0) / 4;
  }
  clock_ = std::max(clock_, clock);
  held_ = held;
  most_held_ = std::max(most_held_, static_cast<double>(held));
  const Size horizon_now = horizon();
  while (first_ < next_) {
    Record& record = ring_[first_ % kMostSamples];
    if (record.open && clock_ - record.born_at < horizon_now) break;
    if (record.open) decide(record, true);
    ++first_;
  }
}

LifetimeLearner::Sample LifetimeLearner::born(ContextKey key) noexcept {
  if (ring_.empty() || next_ - first_ >= kMostSamples) return kNoSample;
  const Sample sample = static_cast<Sample>(next_++ % kMostSamples);
  const bool called_long = table_.split() && table_.learned(key) == LifetimeClass::kLong;
  ring_[sample] = {clock_, key, true, called_long};
  if (trust_ == Trust::kGiven) given_born_ += called_long;
  return sample;
}

void LifetimeLearner::freed(Sample sample, Size born_at) noexcept {
  if (sample >= kMostSamples) return;
  Record& record = ring_[sample];
  if (record.open && record.born_at == born_at) decide(record, clock_ - born_at >= horizon());
}

void LifetimeLearner::decide(Record& record, bool outlived) noexcept {
  record.open = false;
  const bool called_long =
      table_.learned(record.key) == LifetimeClass::kLong;  // before it learns from this one
  ++samples_;
  long_samples_ += outlived;
  right_ += outlived == called_long;
  long_right_ += outlived && called_long;
  weight_ = weight_ * kDecay + 1;
  long_ = long_ * kDecay + outlived;
  called_long_ = called_long_ * kDecay + called_long;
  both_ = both_ * kDecay + (outlived && called_long);
  if (trust_ == Trust::kGiven) given_dead_ += called_long && !outlived;
  const bool changed = table_.observe(record.key, outlived);
  if (changed && trust_ == Trust::kGiven) given_overruled_ = mostly_overruled();
  consider_split();
}

void LifetimeLearner::consider_split() noexcept {
  const Counts now = counts();
  if (trust_ == Trust::kGiven) {
    // A model began the split. Objects that die young are decided first, those that live long a horizon
    // later: until then the dead are compared with all that were born.
    // Or samples overrule the contexts that most of those are of: what they allocate from now on would
    // leave the holes that are theirs.
    const bool wrong = given_overruled_ || (given_dead_ >= kEnoughDead && 2 * given_dead_ > given_born_);
    if (!wrong && long_ < kEnoughLong) return;
    trust_ = Trust::kDecided;
    if (wrong) {
      table_.set_split(false);
      if (mostly_called_long()) table_.set_home(1);
    }
  }
  if (long_ < kEnoughLong) return;
  // A class that tells nothing is right as often as samples are long-lived. To begin, it must do half as well
  // again; to stop, less than a fifth better: in between, nothing changes. How many of the long-lived it
  // finds matters little: some objects of short-lived contexts live long by chance, and nothing tells them
  // apart.
  const bool split = table_.split();
  const bool one_kind = now.long_share > 0.95;  // hardly anything dies: nothing to keep apart
  const bool enough = now.recall >= (split ? 0.01 : 0.02) && now.precision >= 0.3;
  const double lift = now.long_share > 0 ? now.precision / now.long_share : 0;
  const bool pays = !one_kind && enough && (lift >= (split ? 1.2 : 1.5) || now.precision >= 0.9);
  if (pays != table_.split()) table_.set_split(pays);
}

bool LifetimeLearner::mostly_called_long() const noexcept {
  Size open = 0, called_long = 0;
  for (std::uint64_t i = first_; i < next_; ++i) {
    const Record& record = ring_[i % kMostSamples];
    open += record.open;
    called_long += record.open && record.called_long;
  }
  return 2 * called_long > open;
}

bool LifetimeLearner::mostly_overruled() const noexcept {
  Size called_long = 0, overruled = 0;
  for (std::uint64_t i = first_; i < next_; ++i) {
    const Record& record = ring_[i % kMostSamples];
    if (!record.open || !record.called_long) continue;
    ++called_long;
    overruled += table_.learned(record.key) == LifetimeClass::kShort;
  }
  return overruled >= kEnoughDead && 2 * overruled > called_long;
}

bool LifetimeLearner::expect(ContextKey key, LifetimeClass predicted, double share,
                             unsigned samples) noexcept {
  if (!table_.expect(key, predicted, share, samples)) return false;
  if (predicted == LifetimeClass::kLong && trust_ == Trust::kUntold && long_ < kEnoughLong) {
    trust_ = Trust::kGiven;
    table_.set_split(true);
  }
  return true;
}

LifetimeLearner::Counts LifetimeLearner::counts() const noexcept {
  return {samples_,
          long_samples_,
          right_,
          long_right_,
          called_long_ > 0 ? both_ / called_long_ : 0,
          long_ > 0 ? both_ / long_ : 0,
          weight_ > 0 ? long_ / weight_ : 0};
}

}  // namespace memoir
