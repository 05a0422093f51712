// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "memoir/malloc/background.h"
#include "memoir/malloc/blocks/cpu_time.h"
#include "memoir/malloc/blocks/give_back.h"
#include "memoir/malloc/thread_heap.h"

namespace memoir::malloc_ {

namespace {

using size_classes::kSlot;
using size_classes::kTables;
constexpr Size kPage = LifetimeHeap::kPage, kRegion = LifetimeHeap::kRegion;
using span_rules::kBatch;
constexpr size_t kMostCandidates = 65536;
// A share of a round on a thread of the program.
constexpr size_t kSharedRegions = 64, kSharedCandidates = 256;
constexpr unsigned kSharedHeaps = 16, kMostHeapsARound = 512;
constexpr Size kSharedBytes = 8 * kMiB;  // for each round

/// A span that may have pages to give back; spans of one owner come together.
struct Candidate {
  HeapId owner;
  std::uint32_t slot;
  std::uint64_t pages;
  std::uint64_t went;  // of these
};
// The background's own, and of whoever calls malloc_trim, one at a time.
Forever<MetadataArray<Candidate>> candidates_storage;
MetadataArray<Candidate>& candidates() noexcept { return candidates_storage.value; }

Tick own_cpu_time() noexcept { return static_cast<Tick>(cpu_time(CLOCK_THREAD_CPUTIME_ID)); }

}  // namespace

void Upkeep::Leaving::add(Offset offset, Size size, bool breaks_huge, std::uint64_t* pages_went,
                          std::uint64_t pages) noexcept {
  // Refused: the region may become a huge page again, of which nothing was given back then.
  if (breaks_huge) ::madvise(address_of(align_down(offset, kRegion)), kRegion, MADV_NOHUGEPAGE);
  ranges[count] = {address_of(offset), size};
  went[count] = pages_went;
  mask[count++] = pages;
}

void Upkeep::give_back(Leaving& leaving) noexcept {
  const bool any = malloc_::give_back(leaving.ranges, leaving.count, leaving.gone);
  for (size_t i = 0; i < leaving.count; ++i) {
    bytes_left_ -= std::min<Size>(bytes_left_, leaving.ranges[i].iov_len);
    if (!leaving.gone[i]) continue;
    figures_.given_back += leaving.ranges[i].iov_len;
    if (leaving.went[i] != nullptr) *leaving.went[i] |= leaving.mask[i];
    busy_ = true;
  }
  if (any) refusals_ = rests_ = 0;
  else refusals_ += leaving.count;
  leaving.count = 0;
}

/// After so many refusals in a row the next range will be refused too.
bool Upkeep::gives_up(bool everything) const noexcept {
  constexpr Size kMany = 64, kManyOfAll = 4096;
  return refusals_ >= (everything ? kManyOfAll : kMany);
}

void Upkeep::run(bool everything) noexcept {
  const int kept = errno;
  const Tick began = own_cpu_time();
  ++figures_.rounds;
  busy_ = everything;
  refusals_ = 0;
  Central& all = central();
  const Size allocated = all.allocated();
  if (allocated != last_allocated_) looks_ = 0;
  last_allocated_ = allocated;
  // A span is seen at one look and worked on at the next: after the last allocation there are three more.
  if (looks_ < 3) busy_ = true;
  if (all.sampler().active()) all.sampler().advance(allocated, all.held());

  LifetimeHeap::Figures now;
  size_t regions = 0;
  {
    const LockGuard guard(all.lock);
    all.heap.begin_round();
    now = all.heap.figures();
    regions = all.heap.regions();
  }
  rules_.begin(now);
  if (all.options.release && (everything || figures_.rounds >= rests_until_)) {
    look_at_heaps(everything);
    if (everything || UpkeepRules::looks(figures_.rounds, regions)) {
      ++looks_;
      look_at_spans(everything);
      strip_candidates(everything);
      const LockGuard guard(all.lock);
      all.huge_pages.look(all.heap);
    }
    give_back_slots(everything);
    all.large.purge(everything ? 0 : UpkeepRules::kWindow);
    if (all.large.cached() != 0) busy_ = true;
    if (!everything && gives_up(false)) {  // for a growing number of rounds
      constexpr unsigned kMostRests = 9;
      rests_ = std::min(rests_ + 1, kMostRests);
      rests_until_ = figures_.rounds + (Size{1} << rests_);
    }
  }
  if (all.options.huge && !everything && !shared_) restore_huge_pages();
  {
    const LockGuard guard(all.lock);
    now = all.heap.figures();
  }
  rules_.end(now);
  if (const Tick ended = own_cpu_time(); ended > began) figures_.cpu += ended - began;
  publish_figures(figures_, by_size_);
  errno = kept;
}

bool Upkeep::share(unsigned rounds) noexcept {
  shared_ = true;
  bytes_left_ = rounds * kSharedBytes;
  for (unsigned i = 0; i < rounds && bytes_left_ != 0; ++i) run(false);
  shared_ = false;
  return bytes_left_ != 0 && look_from_ == 0;
}

void Upkeep::look_at_heaps(bool everything) noexcept {
  const std::uint32_t long_rest = span_rules::long_rest(registry().crowded());
  constexpr std::uint32_t kAsleep = 1000;  // it gave up its spans
  unsigned left = everything ? ~0u : shared_ ? kSharedHeaps : kMostHeapsARound;
  for (HeapId id = kFirstThreadHeap; left != 0 && id < registry().end(); ++id) {
    ThreadHeap* const heap = registry().find(id);
    if (heap == nullptr) continue;
    const std::uint32_t calls = heap->slow_calls.load(std::memory_order_relaxed);
    // A thread at work takes its queue in itself.
    const bool at_work = heap->seen_calls != calls;
    heap->seen_calls = calls;
    if (at_work) heap->rests = 0;
    else if (heap->rests < kAsleep) ++heap->rests;
    const bool sleeps = heap->rests >= long_rest && heap->rests < kAsleep;
    const bool has_some = heap->queue_waits() || heap->keeps_spans() || heap->holds_blocks();
    if (heap->rests != 0 && heap->rests < long_rest) busy_ = true;
    if (!everything && (at_work || !(has_some || sleeps))) continue;
    --left;
    const LockGuard guard(heap->lock());
    const bool owned = heap->token.load(std::memory_order_relaxed) != kNoToken;
    if (owned && !heap->pause()) continue;
    heap->flush_held();
    heap->drain_queue();
    heap->end_kept();
    if (!owned || sleeps) {
      heap->give_back();
      heap->rests = kAsleep;
    }
    if (owned) heap->resume();
    busy_ = true;
  }
}

void Upkeep::look_at_spans(bool everything) noexcept {
  Central& all = central();
  size_t regions = 0;
  {
    const LockGuard guard(all.lock);
    regions = all.heap.regions();
  }
  const size_t from = shared_ && look_from_ < regions ? look_from_ : 0;
  const size_t end = shared_ ? std::min(from + kSharedRegions, regions) : regions;
  const size_t most = shared_ ? kSharedCandidates : kMostCandidates;
  if (from == 0) {
    live_ = 0;
    by_size_ = {};
  }
  for (size_t region = from; region < end; ++region) {
    const LockGuard guard(all.lock);
    if (!all.heap.region_used(region)) continue;
    const bool rests = all.heap.rests(region, everything);
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
        live_ += span->slots * kSlot;
        by_size_.bytes[size_classes::kCount] += span->slots * kSlot;
        continue;
      }
      const std::uint16_t used = span->used();
      const Size size = kTables.size[span->size_class];
      live_ += used * size;
      by_size_.bytes[span->size_class] += used * size;
      const std::uint16_t seen = span->seen.load(std::memory_order_relaxed);
      const bool was_stripped = span->stripped.load(std::memory_order_relaxed);
      const std::uint64_t remote = RemoteList{span->remote.load(std::memory_order_relaxed)}.count();
      const bool empty = used <= remote;
      if (!everything && used > seen) {  // it is being filled
        span->seen.store(used, std::memory_order_relaxed);
        span->stripped.store(false, std::memory_order_relaxed);
        continue;
      }
      if (rests) continue;
      if (!everything && !rules_.worth_a_look({used, seen, was_stripped, empty})) continue;
      if (span->state.load(std::memory_order_relaxed) == SpanState::kCurrent && !everything) continue;
      const double share = empty ? 1 : UpkeepRules::expected_free_pages(used, span->blocks, size);
      if (share < UpkeepRules::kLeastShare) continue;
      pages += share * static_cast<double>(span->slots * kSlot / kPage);
      if (candidates().size() < most)
        candidates().push_back({owner, static_cast<std::uint32_t>(slot_of(span)), 0, 0});
    }
    if (!everything && !rules_.worth_breaking(pages, all.heap.resident_share(region)))
      candidates().resize_down(had);
  }
  look_from_ = end == regions ? 0 : end;
  if (end != regions) return;
  figures_.live = live_;
  rules_.saw_live(live_);
}

void Upkeep::strip_candidates(bool everything) noexcept {
  MetadataArray<Candidate>& list = candidates();
  std::sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
    return a.owner != b.owner ? a.owner < b.owner : a.slot < b.slot;
  });
  for (size_t begin = 0; begin < list.size() && !gives_up(everything);) {
    size_t end = begin;
    while (end < list.size() && end - begin < kBatch && list[end].owner == list[begin].owner) ++end;
    ThreadHeap* const heap = list[begin].owner == kCommonHeap   ? &common_heap()
                             : list[begin].owner == kSampleHeap ? &sample_heap()
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
      span->seen.store(span->used(), std::memory_order_relaxed);
      span->stripped.store(true, std::memory_order_relaxed);
      if (one.pages == 0) heap->end_if_empty(span, false);
    });
    if (looked) {
      // The spans stay: they are marked as releasing.
      Leaving leaving;
      for (size_t i = begin; i < end; ++i) {
        Candidate& one = list[i];
        if (one.pages == 0) continue;
        const Offset start = one.slot * kSlot;
        bool breaks = false;
        {
          const LockGuard guard(central().lock);
          breaks = central().heap.break_huge(start);
        }
        for (PageRuns runs(one.pages); runs.next();) {
          if (leaving.full()) give_back(leaving);
          leaving.add(start + runs.first() * kPage, runs.count() * kPage, breaks, &one.went, runs.mask());
          breaks = false;
        }
      }
      give_back(leaving);
      const auto finish = [&](Candidate& one, Span* span) {
        if (one.pages != 0) heap->stripped(span, one.pages, one.went);
      };
      while (!each(finish)) pass_time(1'000'000);  // the owner was interrupted inside
    }
    begin = end;
  }
  list.clear();
}

void Upkeep::give_back_slots(bool everything) noexcept {
  Central& all = central();
  Size unused = everything ? ~Size{0} >> 1 : rules_.unused(all.held(), all.options.slack);
  if (unused < UpkeepRules::kLeast) return;
  if (shared_) unused = std::min(unused, bytes_left_);
  give_back_slots(unused, everything ? 1.1 : rules_.fullest(), everything);
}

Size Upkeep::release(Size most) noexcept {
  const int kept = errno;
  refusals_ = 0;
  const Size before = central().large.cached();
  central().large.purge(0);
  Size went = before - std::min(before, central().large.cached());
  if (went < most) went += give_back_slots(most - went, 1.1, false);
  errno = kept;
  return went;
}

Size Upkeep::give_back_slots(Size most, double fullest, bool everything) noexcept {
  Central& all = central();
  Size went = 0;
  LifetimeHeap::Release releases[kBatch];
  static_assert(kBatch <= Leaving::kMost);
  Leaving leaving;
  for (Size done = 0; done < most && !gives_up(everything);) {
    size_t count = 0;
    {
      const LockGuard guard(all.lock);
      count = all.heap.take_releases(releases, kBatch, most - done, fullest, everything);
    }
    for (size_t i = 0; i < count; ++i)
      leaving.add(releases[i].range.begin, releases[i].range.size, releases[i].breaks_huge, nullptr, 0);
    give_back(leaving);
    for (size_t i = 0; i < count; ++i) {
      done += releases[i].range.size;
      went += leaving.gone[i] ? releases[i].range.size : 0;
      const LockGuard guard(all.lock);
      all.heap.released(releases[i].range, leaving.gone[i]);
    }
    if (count < kBatch) break;
  }
  return went;
}

Size Upkeep::give_addresses_back() noexcept {
  const int kept = errno;
  Size went = 0;
  // A process that has too many mappings would not get these back.
  void* const probe = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) {
    errno = kept;
    return 0;
  }
  ::munmap(probe, kPage);
  for (;; went += kRegion) {
    // Under the lock: nobody else may map the region again meanwhile.
    const LockGuard guard(central().lock);
    const Offset region = central().heap.take_away();
    if (region == kNoOffset) break;
    if (malloc_::give_addresses_back(region, kRegion)) continue;
    central().heap.came_back(region);
    break;
  }
  errno = kept;
  return went;
}

void Upkeep::restore_huge_pages() noexcept {
  Central& all = central();
  all.huge_pages.compare();
  if (all.held() < all.options.background_from) return;
  for (int done = 0; done < 256 && all.huge_pages.affordable(); ++done) {
    Offset region = kNoOffset;
    {
      const LockGuard guard(all.lock);
      region = all.heap.take_collapse(rules_.least_used(), rules_.most_gone());
    }
    if (region == kNoOffset) return;
    const bool collapsed = all.huge_pages.restore(region, rules_.most_gone());
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

}  // namespace memoir::malloc_
