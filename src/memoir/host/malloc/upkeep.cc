// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "memoir/host/malloc/background.h"
#include "memoir/host/malloc/thread_heap.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace memoir::host_malloc {

namespace {

using size_classes::kSlot;
using size_classes::kTables;
constexpr Size kPage = LifetimeHeap::kPage, kRegion = LifetimeHeap::kRegion;
constexpr double kMemory = 0.998;  // of the highest load, per look: it fades by half in a minute
constexpr double kNearPeak = 0.85;
constexpr size_t kBatch = 64;  // spans that are worked on while their owner is kept out
constexpr size_t kMostCandidates = 65536;

/// A span that may have pages to give back; spans of one owner come together.
struct Candidate {
  HeapId owner;
  std::uint32_t slot;
  std::uint64_t pages;
};
// The background's own, and of whoever calls malloc_trim, one at a time.
Forever<MetadataArray<Candidate>> candidates_storage;
MetadataArray<Candidate>& candidates() noexcept { return candidates_storage.value; }

/// The share of a span's pages that are expected to have no used block, if used blocks lie at random.
double expected_free_pages(const Span* span) noexcept {
  const double free = 1 - static_cast<double>(span->used.load(std::memory_order_relaxed)) / span->blocks;
  const Size size = kTables.size[span->size_class];
  double share = free;
  if (size < kPage) {
    for (Size touching = (kPage + size - 1) / size; touching > 0 && share > 0.001; --touching) share *= free;
  }
  return share;
}

}  // namespace

bool Upkeep::give_back(Offset offset, Size size, bool breaks_huge) noexcept {
  if (breaks_huge) ::madvise(address_of(align_down(offset, kRegion)), kRegion, MADV_NOHUGEPAGE);
  // Not MADV_FREE: the bytes would count as the program's until the system runs short of memory.
  if (::madvise(address_of(offset), size, MADV_DONTNEED) != 0) return false;
  figures_.given_back += size;
  busy_ = true;
  return true;
}

void Upkeep::run(bool everything) noexcept {
  const int kept = errno;
  ++figures_.rounds;
  busy_ = everything;
  Central& all = central();
  const Size allocated = all.allocated();
  if (allocated != last_allocated_) looks_ = 0;
  last_allocated_ = allocated;
  // A span is seen at one look and worked on at the next: after the last allocation there are three more.
  if (looks_ < 3) busy_ = true;
  if (all.sampler.active()) all.sampler.advance(allocated, all.held());

  LifetimeHeap::Figures now;
  size_t regions = 0;
  {
    const LockGuard guard(all.lock);
    now = all.heap.figures();
    regions = all.heap.regions();
  }
  // Demand is forecast from the last rounds: a heap whose spans have 1/64 more memory than a window ago is
  // filling up. Pages that come back inside spans count as much as new spans.
  const Size before = wanted_[(round_ + 1) % kWindow];
  growing_ = now.used - now.gone_in_spans > before + before / 64;
  if (all.options.release) {
    look_at_heaps(everything);
    // Looking at every span costs a cache line each, 100 microseconds for a heap of 256 MiB: larger heaps are
    // looked at less often.
    if (everything || figures_.rounds % (2 + regions / 512) == 0) {
      ++looks_;
      figures_.live = look_at_spans(everything);
      most_live_ = std::max(most_live_ * kMemory, static_cast<double>(figures_.live));
      near_peak_ = static_cast<double>(figures_.live) > kNearPeak * most_live_;
      strip_candidates();
    }
    give_back_slots(everything);
    all.large.purge(everything ? 0 : kWindow);
    if (all.large.cached() != 0) busy_ = true;
  }
  if (all.options.huge && !everything) restore_huge_pages();
  {
    const LockGuard guard(all.lock);
    now = all.heap.figures();
  }
  round_ = (round_ + 1) % kWindow;
  wanted_[round_] = now.used - now.gone_in_spans;
  free_resident_[round_] = now.free_resident;
  errno = kept;
}

void Upkeep::look_at_heaps(bool everything) noexcept {
  static constinit std::atomic<std::uint32_t> seen[1024]{};
  for (HeapId id = kFirstThreadHeap; id < registry().end(); ++id) {
    ThreadHeap* const heap = registry().find(id);
    if (heap == nullptr) continue;
    const std::uint32_t calls = heap->slow_calls.load(std::memory_order_relaxed);
    // A thread at work takes its queue in itself.
    const bool at_work = seen[id % 1024].exchange(calls, std::memory_order_relaxed) != calls;
    if (!everything && (at_work || !heap->queue_waits())) continue;
    const LockGuard guard(heap->lock());
    const bool owned = heap->token.load(std::memory_order_relaxed) != kNoToken;
    if (owned && !heap->pause()) continue;
    heap->drain_queue();
    if (!owned) heap->give_back();
    if (owned) heap->resume();
    busy_ = true;
  }
}

Size Upkeep::look_at_spans(bool everything) noexcept {
  Central& all = central();
  const bool high = near_peak_ || growing_;
  Size live = 0;
  size_t regions = 0;
  {
    const LockGuard guard(all.lock);
    regions = all.heap.regions();
  }
  for (size_t region = 0; region < regions; ++region) {
    const LockGuard guard(all.lock);
    if (!all.heap.region_used(region)) continue;
    const size_t first = region * LifetimeHeap::kSlots;
    const size_t had = candidates().size();
    double pages = 0;
    for (size_t slot = first; slot < first + LifetimeHeap::kSlots;) {
      Span* const span = span_at(slot);
      const HeapId owner = span->owner.load(std::memory_order_acquire);
      if (owner == kNobody) {  // no span begins here
        ++slot;
        continue;
      }
      slot += std::max<size_t>(span->slots, 1);
      if (owner == kCentral) {
        live += span->slots * kSlot;
        continue;
      }
      const std::uint16_t used = span->used.load(std::memory_order_relaxed);
      const Size size = kTables.size[span->size_class];
      live += used * size;
      const std::uint16_t seen = span->seen.load(std::memory_order_relaxed);
      const bool was_stripped = span->stripped.load(std::memory_order_relaxed);
      const std::uint64_t remote = RemoteList{span->remote.load(std::memory_order_relaxed)}.count();
      const bool empty = used <= remote;
      if (!everything && used > seen) {  // it is being filled
        span->seen.store(used, std::memory_order_relaxed);
        span->stripped.store(false, std::memory_order_relaxed);
        continue;
      }
      // It was looked at: again when an eighth more has gone, or now and then when anything has.
      const bool little = used + std::max(1, seen / 8) > seen && (used == seen || round_ != 0);
      if (!everything && !empty && was_stripped && little) continue;
      if (span->state.load(std::memory_order_relaxed) == SpanState::kCurrent && !everything) continue;
      if (owner < kFirstThreadHeap && !empty) continue;
      const double share = empty ? 1 : expected_free_pages(span);
      if (share < 0.03) continue;
      pages += share * static_cast<double>(span->slots * kSlot / kPage);
      if (candidates().size() < kMostCandidates)
        candidates().push_back({owner, static_cast<std::uint32_t>(slot_of(span)), 0});
    }
    // A dense region keeps its huge page: less than an eighth of it is not worth breaking it up for. While
    // load is high the next objects will want the holes: up to half of it is then not worth it, huge page or
    // not.
    const double free = static_cast<double>(kRegion / kPage) * (high ? 0.5 : 0.125);
    if (!everything && (high || all.heap.resident_share(region) > 0.999) && pages < free)
      candidates().resize_down(had);
  }
  return live;
}

void Upkeep::strip_candidates() noexcept {
  MetadataArray<Candidate>& list = candidates();
  std::sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
    return a.owner != b.owner ? a.owner < b.owner : a.slot < b.slot;
  });
  for (size_t begin = 0; begin < list.size();) {
    size_t end = begin;
    while (end < list.size() && end - begin < kBatch && list[end].owner == list[begin].owner) ++end;
    ThreadHeap* const heap = list[begin].owner == kCommonHeap   ? &common_heap
                             : list[begin].owner == kSampleHeap ? &sample_heap
                                                                : registry().find(list[begin].owner);
    const auto each = [&](auto visit) {
      const LockGuard guard(heap->lock());
      const bool owned = heap->token.load(std::memory_order_relaxed) != kNoToken;
      if (owned && !heap->pause()) return false;
      for (size_t i = begin; i < end; ++i) visit(list[i], span_at(list[i].slot));
      if (owned) heap->resume();
      return true;
    };
    const bool looked = each([&](Candidate& one, Span* span) {
      if (span->owner.load(std::memory_order_relaxed) != one.owner) return;
      one.pages = heap->strip(span);
      span->seen.store(span->used.load(std::memory_order_relaxed), std::memory_order_relaxed);
      span->stripped.store(true, std::memory_order_relaxed);
      if (one.pages == 0) heap->end_if_empty(span, false);
    });
    if (looked) {
      // The spans stay: they are marked as releasing.
      for (size_t i = begin; i < end; ++i) {
        Candidate& one = list[i];
        if (one.pages == 0) continue;
        const Offset start = one.slot * kSlot;
        bool breaks = false;
        {
          const LockGuard guard(central().lock);
          breaks = central().heap.break_huge(start);
        }
        for (std::uint64_t rest = one.pages; rest != 0;) {
          const int first = std::countr_zero(rest), count = std::countr_one(rest >> first);
          give_back(start + first * kPage, count * kPage, breaks);
          breaks = false;
          rest = first + count == 64 ? 0 : rest >> (first + count) << (first + count);
        }
      }
      const auto finish = [&](Candidate& one, Span* span) {
        if (one.pages != 0) heap->stripped(span, one.pages, true);
      };
      while (!each(finish)) ::usleep(1000);  // the owner was interrupted inside
    }
    begin = end;
  }
  list.clear();
}

void Upkeep::give_back_slots(bool everything) noexcept {
  Central& all = central();
  // What even the poorest of the last rounds had free was not needed; the slack stays, for the next demand.
  Size unused = *std::min_element(std::begin(free_resident_), std::end(free_resident_));
  const auto slack = static_cast<Size>(all.options.slack * static_cast<double>(all.held()));
  if (everything) unused = ~Size{0} >> 1;
  else unused = unused > slack ? (unused - slack) / 2 : 0;
  if (unused < kRegion / 8) return;
  LifetimeHeap::Release releases[kBatch];
  for (Size done = 0; done < unused;) {
    size_t count = 0;
    {
      const LockGuard guard(all.lock);
      count = all.heap.take_releases(releases, kBatch, unused - done,
                                     everything               ? 1.1
                                     : near_peak_ || growing_ ? 0.5
                                                              : 0.9);
    }
    for (size_t i = 0; i < count; ++i) {
      const bool gone = give_back(releases[i].range.begin, releases[i].range.size, releases[i].breaks_huge);
      done += releases[i].range.size;
      const LockGuard guard(all.lock);
      all.heap.released(releases[i].range, gone);
    }
    if (count < kBatch) break;
  }
}

void Upkeep::restore_huge_pages() noexcept {
  Central& all = central();
  if (all.held() < all.options.background_from) return;
  // While load is high or rises, what was given back will be wanted: regions become huge pages ahead of that.
  // Else only those where hardly a page is gone.
  const bool high = near_peak_ || growing_;
  const double most_gone = high ? 0.35 : 0.06;
  const double least_used = high ? 0.5 : 0.9;
  for (int done = 0; done < 256; ++done) {
    Offset region = kNoOffset;
    {
      const LockGuard guard(all.lock);
      region = all.heap.take_collapse(least_used, most_gone);
    }
    if (region == kNoOffset) return;
    ::madvise(address_of(region), kRegion, MADV_HUGEPAGE);
    const bool collapsed = ::madvise(address_of(region), kRegion, MADV_COLLAPSE) == 0;
    if (collapsed) ++figures_.collapsed;
    const LockGuard guard(all.lock);
    all.heap.collapsed(region, collapsed);
    // Pages that spans think gone are there again: spans that were looked at must be again.
    const size_t first = region / kSlot;
    for (size_t slot = first; collapsed && slot < first + LifetimeHeap::kSlots; ++slot) {
      if (const HeapId owner = span_at(slot)->owner.load(std::memory_order_acquire);
          owner != kNobody && owner != kCentral)
        span_at(slot)->stripped.store(false, std::memory_order_relaxed);
    }
  }
}

}  // namespace memoir::host_malloc
