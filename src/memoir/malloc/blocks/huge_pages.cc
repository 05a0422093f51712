// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "memoir/malloc/blocks/address_map.h"
#include "memoir/malloc/blocks/cpu_time.h"
#include "memoir/malloc/blocks/span.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace memoir::malloc_ {

namespace {

using size_classes::kSlot;
constexpr Size kPage = LifetimeHeap::kPage, kRegion = LifetimeHeap::kRegion;
constexpr size_t kPages = kRegion / kPage;
constexpr size_t kRegionsALook = 8, kTried = 64;
constexpr double kMemory = 0.75;  // of earlier looks
// Walks of page tables that a huge page saves are worth about as much as the faults that it saves.
constexpr double kWorth = 2;
constexpr double kBegins = 0.85, kEnds = 0.75;  // touched shares at which huge pages begin and end to pay

std::atomic<bool> says{true};  // the system says which pages are there

/// Which pages are there: the lowest bit of a byte each. False where the system does not say.
bool ask(Offset region, unsigned char (&pages)[kPages]) noexcept {
  if (!says.load(std::memory_order_relaxed) || !host_control::may_call_all()) return false;
  const int kept = errno;
  const bool done = ::mincore(address_of(region), kRegion, pages) == 0;
  if (!done && errno != EAGAIN && errno != ENOMEM) says.store(false, std::memory_order_relaxed);
  errno = kept;
  return done;
}

}  // namespace

void HugePages::compare() noexcept {
  const std::int64_t extra = extra_.load(std::memory_order_relaxed);
  affordable_.store(extra == 0 || static_cast<double>(extra) <
                                      share_ * static_cast<double>(cpu_time(CLOCK_PROCESS_CPUTIME_ID)),
                    std::memory_order_relaxed);
}

void HugePages::spend(std::int64_t nanoseconds) noexcept {
  // One measurement says little: it may have begun before a filter took the clock away.
  constexpr std::int64_t kMostAtOnce = 100'000'000;
  nanoseconds = std::min(nanoseconds, kMostAtOnce);
  // What was cheaper than small pages pays for what was dearer, but is not saved up.
  const std::int64_t extra = extra_.load(std::memory_order_relaxed) + nanoseconds;
  extra_.store(std::max<std::int64_t>(extra, 0), std::memory_order_relaxed);
  compare();
}

void HugePages::opened(Offset span, bool huge) noexcept {
  const std::int64_t began = cpu_time(CLOCK_THREAD_CPUTIME_ID);
  *static_cast<volatile char*>(address_of(span)) = 0;
  const std::int64_t took = cpu_time(CLOCK_THREAD_CPUTIME_ID) - began;
  const std::int64_t small = small_.load(std::memory_order_relaxed);
  if (huge) {
    const double touched = touched_.load(std::memory_order_relaxed) * static_cast<double>(kPages);
    spend(took - static_cast<std::int64_t>(kWorth * touched * static_cast<double>(small)));
  } else {
    small_.store(small + (std::min(took, 4 * small) - small) / 8, std::memory_order_relaxed);
  }
}

bool HugePages::ask_for(Offset region) noexcept {
  const int kept = errno;
  const bool done = ::madvise(address_of(region), kRegion, MADV_HUGEPAGE) == 0;
  refused_ = !done && errno != EAGAIN && errno != ENOMEM;
  errno = kept;
  return done;
}

bool HugePages::restore(Offset region, double most_absent) noexcept {
  if (!collapses_.load(std::memory_order_relaxed)) return false;
  const std::int64_t began = cpu_time(CLOCK_THREAD_CPUTIME_ID);
  unsigned char pages[kPages];
  if (!ask(region, pages)) return false;
  // What was never touched is absent too, without ever having gone.
  const auto absent = std::count_if(pages, pages + kPages, [](unsigned char one) { return (one & 1) == 0; });
  if (static_cast<double>(absent) > most_absent * static_cast<double>(kPages)) return false;
  ::madvise(address_of(region), kRegion, MADV_HUGEPAGE);
  const bool collapsed = ::madvise(address_of(region), kRegion, MADV_COLLAPSE) == 0;
  // An older kernel, or a filter; else the region may have its huge page another time.
  if (!collapsed && errno != EAGAIN && errno != ENOMEM && errno != EBUSY && !collapsed_once_)
    collapses_.store(false, std::memory_order_relaxed);
  collapsed_once_ = collapsed_once_ || collapsed;
  const double saved = kWorth * static_cast<double>(absent * small_.load(std::memory_order_relaxed));
  spend(cpu_time(CLOCK_THREAD_CPUTIME_ID) - began - static_cast<std::int64_t>(saved));
  return collapsed;
}

void HugePages::look(const LifetimeHeap& heap) noexcept {
  looked_ = true;
  there_ *= kMemory;
  expected_ *= kMemory;
  size_t found = 0;
  for (size_t i = 0; i < std::min(kTried, heap.regions()) && found < kRegionsALook; ++i) {
    if (++next_ >= heap.regions()) next_ = 0;
    if (heap.asks_for_huge(next_) || !heap.region_used(next_)) continue;
    look_at(heap, next_);
    ++found;
  }
  pays_ = touched() >= (pays_ ? kEnds : kBegins);
  touched_.store(touched(), std::memory_order_relaxed);
}

void HugePages::look_at(const LifetimeHeap& heap, size_t region) noexcept {
  unsigned char pages[kPages];
  if (!ask(region * kRegion, pages)) return;
  const size_t first = region * LifetimeHeap::kSlots;
  for (size_t slot = first; slot < first + LifetimeHeap::kSlots;) {
    const Span* const span = span_at(slot);
    const SpanState state = span->state.load(std::memory_order_relaxed);
    if (span->owner.load(std::memory_order_acquire) == kNobody || state == SpanState::kNone) {
      ++slot;
      continue;
    }
    const size_t slots = std::max<size_t>(span->slots, 1);
    // Of the span that is allocated from, a part was not handed out yet.
    if (state != SpanState::kCurrent) {
      const size_t at = (slot - first) * kSlot / kPage, count = std::min(slots * kSlot / kPage, kPages - at);
      const std::uint64_t gone =
          state == SpanState::kSingle ? 0 : heap.gone_pages({slot * kSlot, slots * kSlot});
      for (size_t i = 0; i < count; ++i) {
        if (i < 64 && (gone >> i & 1) != 0) continue;
        expected_ += 1;
        there_ += pages[at + i] & 1;
      }
    }
    slot += slots;
  }
}

}  // namespace memoir::malloc_
