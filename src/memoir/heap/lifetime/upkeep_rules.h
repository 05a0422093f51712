// SPDX-License-Identifier: Apache-2.0
//
// How much memory goes back, and where huge pages are wanted: what malloc's background decides in its rounds,
// of which there are ten a second. It looks at figures alone, so that a simulation decides the same.
//
//   load is high    live bytes are near their decayed maximum, or spans take up memory: the holes will be
//                   wanted. Only sparse regions give back, and those that lost pages become huge again
//   else            what even the poorest of the last rounds had free was not needed: all but a slack goes
#pragma once

#include <algorithm>

#include "memoir/heap/lifetime/lifetime_heap.h"

namespace memoir {

class UpkeepRules {
 public:
  static constexpr unsigned kWindow = 8;                     // rounds
  static constexpr Tick kRound = 100'000'000;                // nanoseconds between rounds
  static constexpr Size kLeast = LifetimeHeap::kRegion / 8;  // bytes: less is not worth giving back

  /// A round begins.
  void begin(const LifetimeHeap::Figures& now) noexcept {
    // Demand is forecast from the last rounds: a heap whose spans have 1/64 more memory than a window ago is
    // filling up. Pages that come back inside spans count as much as new spans.
    const Size before = wanted_[(round_ + 1) % kWindow];
    const Size wanted = now.used - now.gone_in_spans;
    growing_ = wanted > before + before / 64;
    present_ = wanted;
    lowest_ = std::min(lowest_, wanted);
    came_ = std::max(came_, wanted - lowest_);
  }
  /// Spans were looked at: so many bytes of blocks are used. What spans grew by since the last look was used
  /// once: a load that came and went in between was a load too.
  void saw_live(Size live) noexcept {
    most_live_ = std::max(most_live_ * kMemory, static_cast<double>(std::max(live, came_)));
    lowest_ = present_;
    came_ = 0;
    near_peak_ = static_cast<double>(live) > kNearPeak * most_live_;
  }
  void end(const LifetimeHeap::Figures& now) noexcept {
    round_ = (round_ + 1) % kWindow;
    wanted_[round_] = now.used - now.gone_in_spans;
    free_resident_[round_] = now.free_resident;
  }

  bool high() const noexcept { return near_peak_ || growing_; }

  /// Whether spans are looked at in the n-th round. That costs a cache line for each: 100 microseconds for a
  /// heap of 256 MiB. Larger heaps are looked at less often.
  static bool looks(Size round, size_t regions) noexcept { return round % (2 + regions / 512) == 0; }

  /// Bytes of free slots to give back, of a heap that holds `held` for objects.
  Size unused(Size held, double slack) const noexcept {
    const Size least = *std::min_element(std::begin(free_resident_), std::end(free_resident_));
    const auto kept = static_cast<Size>(slack * static_cast<double>(held));
    return least > kept ? (least - kept) / 2 : 0;
  }
  /// Of how full regions at most (LifetimeHeap::take_releases).
  double fullest() const noexcept { return high() ? 0.5 : 0.9; }

  // Regions that become huge pages again (LifetimeHeap::take_collapse): while load is high, ahead of the
  // demand; else only where hardly a page is gone.
  double most_gone() const noexcept { return high() ? 0.35 : 0.06; }
  double least_used() const noexcept { return high() ? 0.5 : 0.9; }

  /// A span's used blocks, when it was looked at last and now.
  struct SpanCounts {
    size_t used = 0, seen = 0;
    bool stripped = false;  // its free pages were given back at `seen`
    bool empty = false;
  };
  /// Whether the pages of a span that shrinks are worth a look: when an eighth more has gone since the last,
  /// or now and then when anything has.
  bool worth_a_look(const SpanCounts& span) const noexcept {
    const bool little =
        span.used + std::max<size_t>(1, span.seen / 8) > span.seen && (span.used == span.seen || round_ != 0);
    return span.empty || !span.stripped || !little;
  }
  /// The share of a span's pages that are expected to have no used block, if those lie at random.
  static double expected_free_pages(size_t used, size_t blocks, Size size) noexcept {
    const double free = 1 - static_cast<double>(used) / static_cast<double>(blocks);
    double share = free;
    if (size < LifetimeHeap::kPage) {
      for (Size touching = (LifetimeHeap::kPage + size - 1) / size; touching > 0 && share > 0.001; --touching)
        share *= free;
    }
    return share;
  }
  static constexpr double kLeastShare = 0.03;  // of pages expected to be free: less is not worth the walk

  /// Whether a region's spans should give up so many pages. A dense region keeps its huge page: less than an
  /// eighth of it is not worth breaking it up for. While load is high, up to half of it is not, huge page or
  /// not.
  bool worth_breaking(double pages, double resident_share) const noexcept {
    const double all = static_cast<double>(LifetimeHeap::kRegion / LifetimeHeap::kPage);
    return !(high() || resident_share > 0.999) || pages >= all * (high() ? 0.5 : 0.125);
  }

 private:
  static constexpr double kMemory = 0.998;  // of the highest load, per look: it fades by half in a minute
  static constexpr double kNearPeak = 0.85;

  unsigned round_ = 0;
  Size free_resident_[kWindow] = {};  // of the last rounds
  Size wanted_[kWindow] = {};         // bytes with memory in spans, of the last rounds
  Size present_ = 0;                  // bytes with memory in spans
  Size lowest_ = 0;                   // of these, since spans were looked at
  Size came_ = 0;                     // the most that they grew by from there
  double most_live_ = 0;              // decayed maximum
  bool growing_ = false;
  bool near_peak_ = false;
};

}  // namespace memoir
