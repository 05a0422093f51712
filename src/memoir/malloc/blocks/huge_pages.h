// SPDX-License-Identifier: Apache-2.0
//
// Where huge pages pay. One fills all of its 2 MiB with zeros and holds them, and what that costs depends on
// how scattered the system's free memory is: from less than the small pages in its place to several times as
// much. So both sides are measured.
//
//   touched share   of the pages that blocks were handed out on, those that are there. Programs that ask for
//                   buffers and fill a part of each do better with small pages. The system says which small
//                   pages are there, so regions without huge pages are asked: those from before the heap was
//                   large, and then one in span_rules::kSparedOf
//   extra time      CPU time of huge pages beyond twice that of the small ones that they stand for;
//                   `huge_cost` of the program's CPU time at most
#pragma once

#include <atomic>
#include <cstdint>

#include "memoir/base/units.h"
#include "memoir/heap/lifetime/lifetime_heap.h"
#include "memoir/heap/lifetime/span_rules.h"

namespace memoir::malloc_ {

class HugePages {
 public:
  /// Extra time may be that share of the program's CPU time. Before anything else.
  void allow(double share) noexcept { share_ = share; }
  /// Looks at a few regions. The caller has the central lock.
  void look(const LifetimeHeap& heap) noexcept;
  /// Whether a region that is opened should be a huge page. The caller has the central lock; the first call
  /// looks.
  bool wanted(const LifetimeHeap& heap) noexcept {
    if (refused_) return false;
    if (!looked_) look(heap);
    return pays_ && affordable();
  }
  /// Asks the system for a huge page there. False: it has none for us, now or at all. The caller has the
  /// central lock.
  bool ask_for(Offset region) noexcept;
  /// Whether a region that is wanted huge keeps small pages all the same, to be looked at: one in
  /// span_rules::kSparedOf. The caller has the central lock.
  bool spared() noexcept { return ++opened_ % span_rules::kSparedOf == 0; }
  /// Touches the first page of a span that opened a region. Any thread, without the lock.
  void opened(Offset span, bool huge) noexcept;
  /// Makes a region that lost pages, at most `most_absent` of them (a fraction), a huge page again. The
  /// background, without the lock. False: it is none.
  bool restore(Offset region, double most_absent) noexcept;
  /// Whether the extra time was within its share of the program's CPU time, when that was compared last. Any
  /// thread.
  bool affordable() const noexcept { return affordable_.load(std::memory_order_relaxed); }
  void compare() noexcept;

  /// Of the pages that blocks were handed out on, those that are there; 1 before anything is known.
  double touched() const noexcept { return expected_ < 1 ? 1 : there_ / expected_; }
  Tick extra() const noexcept { return static_cast<Tick>(extra_.load(std::memory_order_relaxed)); }

 private:
  void look_at(const LifetimeHeap& heap, size_t region) noexcept;
  void spend(std::int64_t nanoseconds) noexcept;

  unsigned opened_ = 0;
  double share_ = 0;
  bool looked_ = false, pays_ = true;
  bool refused_ = false;             // there are no huge pages here
  size_t next_ = 0;                  // region
  double there_ = 0, expected_ = 0;  // pages, decayed
  std::atomic<double> touched_{1};
  std::atomic<bool> affordable_{true};
  bool collapsed_once_ = false;        // the background's
  std::atomic<bool> collapses_{true};  // the system makes regions huge again, or that was not tried
  std::atomic<std::int64_t> extra_{0}, small_{kFirstSmall};  // nanoseconds; of one small page
  static constexpr std::int64_t kFirstSmall = 1500;
};

}  // namespace memoir::malloc_
