// SPDX-License-Identifier: Apache-2.0
//
// Who holds memory: the sampled blocks that are still there, by the call that asked for them. A sample stands
// for the bytes that were allocated since the one before, so sums over samples estimate live bytes (unbiased
// but for blocks that found no place). The learner forgets a sample once it is decided; this does not, until
// the block is freed. `memoir top` reads the largest rows, and `old` bytes are those of blocks that outlived
// the learner's horizon: what keeps pages from going back when load falls.
#pragma once

#include <atomic>

#include "memoir/base/lock.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir::malloc_ {

/// Behind the exported name `memoir_malloc_sites`; `changes` as in LiveFigures.
struct SiteFigures {
  static constexpr size_t kMost = 32;
  struct Row {
    std::atomic<std::uint64_t> caller, live, old, samples;  // a return address; bytes; bytes; blocks
  };

  std::uint64_t version = 1;
  std::atomic<std::uint64_t> count{0}, changes{0};
  Row row[kMost] = {};
};

class LiveSamples {
 public:
  bool start() noexcept;
  /// A block was handed out that stands for `bytes`; `clock`: bytes allocated so far. Any thread.
  void born(const void* block, const void* caller, Size bytes, Size clock) noexcept;
  /// A sampled block is freed. Any thread.
  void freed(const void* block) noexcept;
  /// The background: the sites with most old bytes, then with most live ones. `horizon`: allocated bytes
  /// after which a block counts as old.
  void publish(SiteFigures& out, Size clock, Size horizon) noexcept;
  Lock& lock() noexcept { return lock_; }

 private:
  struct Place {
    const void* block;
    std::uint64_t caller;
    Size bytes, born_at;
  };
  struct Site {
    std::uint64_t caller, live, old, samples;
  };
  static constexpr size_t kPlaces = 1 << 12, kWays = 4, kSites = 1 << 10;

  Place* set_of(const void* block) noexcept;

  Lock lock_;
  MetadataArray<Place> places_;  // a block is in one of kWays places; the youngest gives way
  MetadataArray<Site> sites_;    // of one call of publish()
};

}  // namespace memoir::malloc_
