// SPDX-License-Identifier: Apache-2.0
//
// Learns, while a program runs, which contexts' objects outlive the rest. Its clock is the bytes that the
// program has allocated. A sampled object is long-lived when it is still there once `tau` times the heap has
// been allocated since its birth, and that moment decides, not its death: no outcome is left open (exact
// censoring).
//
//   clock     0 ......... born ......... born + horizon ..........
//   freed here:            short         |
//   alive here:                          long, and forgotten: its free is of no more interest
//
// Whether two classes are expected to pay is measured too: of the samples, how many of those that a context's
// class called long were long (precision), and how many of the long ones it called long (recall). Random
// lifetimes have a precision equal to the share of long samples, and then the heap stays in one class.
//
// Not thread-safe: the owner locks. Its memory is its own; it never calls malloc.
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/predict/context_table.h"

namespace memoir {

struct LearnerOptions {
  double tau = 2;                  // the horizon, as a multiple of the decayed maximum of the heap
  Size sample_every = 128 * kKiB;  // bytes allocated between samples, on average, at least
};

class LifetimeLearner {
 public:
  /// A sample's place; kNoSample when it was not taken.
  using Sample = std::uint32_t;
  static constexpr Sample kNoSample = ~Sample{0};
  static constexpr size_t kMostSamples = 4096;  // at once

  bool start(const LearnerOptions& options) noexcept;
  bool started() const noexcept { return !ring_.empty(); }

  /// `clock`: bytes allocated since the start. `held`: bytes that the heap holds for objects now.
  void advance(Size clock, Size held) noexcept;
  /// An object was allocated now; `key` is its context. The caller reports its free by the sample's number.
  Sample born(ContextKey key) noexcept;
  /// Free it; a sample that is decided already is ignored.
  void freed(Sample sample, Size born_at) noexcept;
  /// Whether that sample still waits for its outcome.
  bool open(Sample sample, Size born_at) const noexcept {
    return sample < ring_.size() && ring_[sample].open && ring_[sample].born_at == born_at;
  }
  /// The clock at the birth of the last sample: with its number it names a sample for ever.
  Size clock() const noexcept { return clock_; }

  /// What a model says of a context. The first one that it calls long-lived begins the split, which the first
  /// samples confirm or end. False where samples of the context were there first.
  bool expect(ContextKey key, LifetimeClass predicted, double share, unsigned samples) noexcept;

  /// Bytes between samples on average, such that the ring holds a horizon.
  Size sample_every() const noexcept;
  Size horizon() const noexcept;

  const ContextTable& table() const noexcept { return table_; }
  ContextTable& table() noexcept { return table_; }

  struct Counts {
    Size samples = 0, long_samples = 0, right = 0;     // decided; right: as learned before
    Size long_right = 0;                               // of the long ones
    double precision = 0, recall = 0, long_share = 0;  // decayed
  };
  Counts counts() const noexcept;

 private:
  struct Record {
    Size born_at;
    ContextKey key;
    bool open;
    bool called_long;  // when it was allocated, and so that is where it lies
  };

  void decide(Record& record, bool outlived) noexcept;
  void consider_split() noexcept;
  /// Whether most of what is open lies where a model had long-lived objects go.
  bool mostly_called_long() const noexcept;
  /// Whether samples said otherwise of the contexts of most of that.
  bool mostly_overruled() const noexcept;

  LearnerOptions options_;
  ContextTable table_;
  MetadataArray<Record> ring_;  // by birth; [first_, next_) modulo its size may be open
  std::uint64_t first_ = 0, next_ = 0;
  Size clock_ = 0, held_ = 0;
  double most_held_ = 0;  // decayed maximum
  Size samples_ = 0, long_samples_ = 0, right_ = 0, long_right_ = 0;
  enum class Trust : std::uint8_t { kUntold, kGiven, kDecided };
  Trust trust_ = Trust::kUntold;  // in what a model says: given until the samples decide
  bool given_overruled_ = false;
  Size given_born_ = 0, given_dead_ = 0;  // samples meanwhile that it called long; those that died
  double weight_ = 0, long_ = 0, called_long_ = 0, both_ = 0;  // decayed counts
};

}  // namespace memoir
