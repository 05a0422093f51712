// SPDX-License-Identifier: Apache-2.0
//
// The learner with a lock, and which live blocks are its samples. A sampled block lies in a span of the
// samples' own heap, where every free takes the slow path and asks here.
#pragma once

#include <atomic>

#include "memoir/base/lock.h"
#include "memoir/base/units.h"
#include "memoir/predict/lifetime_learner.h"
#include "memoir/predict/sample_pace.h"

namespace memoir::malloc_ {

class LiveLearner {
 public:
  bool start(const LearnerOptions& options) noexcept;
  bool active() const noexcept { return active_.load(std::memory_order_acquire); }

  /// A block was handed out to that context now.
  void born(const void* block, ContextKey key, Size clock, Size held) noexcept;
  /// A block of the samples' heap is freed.
  void freed(const void* block, Size clock, Size held) noexcept;
  void advance(Size clock, Size held) noexcept;

  /// Bytes until a thread's next sample, on average.
  Size every() const noexcept { return every_.load(std::memory_order_relaxed); }

  /// Allocated bytes that a sample of that size stands for.
  Size weight(Size size) const noexcept;
  /// Allocated bytes after which an object counts as long-lived.
  Size horizon() noexcept;

  size_t row_of(ContextKey key) const noexcept { return learner_.table().row_of(key); }
  /// What a model says of a context; see LifetimeLearner.
  bool expect(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept;
  LifetimeLearner::Counts counts() noexcept;
  /// ContextTable's; it takes microseconds.
  double right_by_context() noexcept;
  size_t long_contexts() noexcept;
  /// False: everything is of row 0.
  bool has_rows() const noexcept { return learner_.table().has_rows(); }
  /// Whether what was learned is followed.
  bool split() const noexcept { return learner_.table().split(); }
  Lock& lock() noexcept { return lock_; }

 private:
  struct Place {
    const void* block = nullptr;
    Size born_at = 0;
    LifetimeLearner::Sample sample = 0;
  };
  static constexpr size_t kPlaces = 2 * LifetimeLearner::kMostSamples;
  static constexpr size_t kWays = 4;

  Place* set_of(const void* block) noexcept;

  Lock lock_;
  LifetimeLearner learner_;
  SamplePace pace_;
  MetadataArray<Place> places_;                  // a block is in one of kWays places
  alignas(64) std::atomic<bool> active_{false};  // read by every thread, seldom written, as `every_`
  std::atomic<Size> every_{0};
};

}  // namespace memoir::malloc_
