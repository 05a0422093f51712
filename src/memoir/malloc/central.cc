// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/central.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "memoir/malloc/background.h"
#include "memoir/malloc/blocks/free_list.h"
#include "memoir/malloc/next_malloc.h"
#include "memoir/malloc/thread_heap.h"
#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

namespace {

void say_which_is_checked() noexcept {
  constexpr std::string_view kLine =
      kChecked
          ? "memoir: MEMOIR_MALLOC: secure=0 has no effect in libmemoir_malloc_secure.so, which checks\n"
          : "memoir: MEMOIR_MALLOC: secure=1 needs another library, libmemoir_malloc_secure.so: start the "
            "program with memoir run --set secure\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
}

/// Bytes, by whichever source says most: where a page is larger than we think, giving one back takes its
/// neighbours along.
Size page_size() noexcept {
  return static_cast<Size>(std::max({static_cast<long>(::getpagesize()), ::sysconf(_SC_PAGESIZE),
                                     static_cast<long>(::getauxval(AT_PAGESZ))}));
}

/// Whether the malloc that the program would have without this one serves it, since this one cannot.
bool hand_on(const char* why) noexcept {
  char line[160];
  const int length = std::snprintf(line, sizeof line, "memoir: %s: the system's malloc serves\n", why);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
  return next_malloc::find();
}

}  // namespace

bool Central::set_up() noexcept {
  std::uint32_t fresh = kFresh;
  if (state_.compare_exchange_strong(fresh, kSettingUp, std::memory_order_acquire)) {
    first_thread_ = current_thread();
    options = read_malloc_options();
    limit.set(options.limit);
    huge_pages.allow(options.huge_cost);
    if (options.secure != kChecked) say_which_is_checked();
    if constexpr (kChecked) free_list::choose_keys();
    if (options.all_calls) host_control::trust_filter_at_start();
    char why[80] = "";
    if (page_size() != LifetimeHeap::kPage)
      std::snprintf(why, sizeof why, "pages are %llu KiB here, memoir's malloc knows 4 KiB",
                    static_cast<unsigned long long>(page_size() / kKiB));
    else if (!choose_addresses())
      std::snprintf(why, sizeof why, "there are no addresses for memoir's malloc");
    learner_storage.begin();
    common_storage.begin(kCommonHeap, kNoToken);
    sample_storage.begin(kSampleHeap, kNoToken);
    const bool able = why[0] == '\0';
    state_.store(able ? kReady : kBroken, std::memory_order_release);
    if (!able && hand_on(why)) state_.store(kHandedOn, std::memory_order_release);
    wake_all(&state_);
    if (!able) return false;
    // At the first malloc, ahead of everybody else's handlers: those, which may call malloc, run before ours
    // prepare. It may call malloc.
    ::pthread_atfork([] { prepare_fork(); }, [] { after_fork(false); }, [] { after_fork(true); });
    return true;
  }
  while (state_.load(std::memory_order_acquire) == kSettingUp) sleep_on(&state_, kSettingUp, 1'000'000);
  return state_.load(std::memory_order_acquire) == kReady;
}

bool Central::grow(bool whole) noexcept {
  constexpr Size kRegion = LifetimeHeap::kRegion;
  constexpr int kMostGaps = 64;
  const int kept = errno;
  bool grown = false;
  // What went back comes first: it has records.
  for (Offset away = heap.away(); !grown && away != kNoOffset; away = heap.away()) {
    const Growth again = take_addresses_again(away, kRegion);
    if (again == Growth::kRefused) break;
    heap.came_back(away, again == Growth::kGap);
    grown = again == Growth::kDone;
  }
  // Large steps keep the system's list of mappings short; where it refuses one, a small one may do.
  for (Size step = span_rules::kGrowth; !grown && heap.away() == kNoOffset;) {
    // Blocks that are spans of their own can be mappings too, those of classes cannot: the last quarter is
    // for these.
    if (whole && arena_size() >= kArenaCapacity / 4 * 3) break;
    int gaps = 0;
    Growth more = Growth::kGap;
    for (; gaps < kMostGaps && more == Growth::kGap && heap.make_room(step / kRegion); ++gaps) {
      more = grow_addresses(step);
      if (more != Growth::kRefused) heap.add_regions(step / kRegion, more == Growth::kGap);
    }
    grown = more == Growth::kDone;
    if (step == kRegion) break;
    step = kRegion;
  }
  errno = kept;
  return grown;
}

Span* Central::new_span(size_t slots, LifetimeClass lifetime, bool& zero, bool whole) noexcept {
  const Size size = slots * size_classes::kSlot;
  LifetimeHeap::Placement placed;
  bool opens_huge = false;
  {
    const LockGuard guard(lock);
    const bool huge = may_be_huge() && held() >= options.background_from && huge_pages.wanted(heap);
    placed = heap.allocate(size, lifetime, huge);
    if (!placed && grow(whole)) placed = heap.allocate(size, lifetime, huge);
    if (!placed) return nullptr;
    const LifetimeHeap::Figures now = heap.figures();
    used_.store(now.used, std::memory_order_relaxed);
    resident_.store(now.resident, std::memory_order_relaxed);
    if (limit.due(in_memory())) limit_due.store(true, std::memory_order_relaxed);
    opens_huge = placed.new_region && huge;
    if (opens_huge && huge_pages.spared()) {
      opens_huge = false;
      heap.break_huge(align_down(placed.offset, LifetimeHeap::kRegion));
    }
    const Offset region = align_down(placed.offset, LifetimeHeap::kRegion);
    if (opens_huge && !huge_pages.ask_for(region)) {
      opens_huge = false;
      heap.break_huge(region);
    }
  }
  if (placed.new_region && options.huge) huge_pages.opened(placed.offset, opens_huge);
  const size_t first = placed.offset / size_classes::kSlot;
  for (size_t i = 0; i < slots; ++i) *back_at(first + i) = static_cast<std::uint8_t>(i);
  zero = placed.zero;
  return span_at(first);
}

void Central::end_span(Span* span) noexcept {
  const size_t slot = slot_of(span);
  span->state.store(SpanState::kNone, std::memory_order_relaxed);
  span->owner.store(kNobody, std::memory_order_relaxed);
  const LockGuard guard(lock);
  heap.free({slot * size_classes::kSlot, span->slots * size_classes::kSlot});
  spans_ended_.store(spans_ended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  used_.store(heap.figures().used, std::memory_order_relaxed);
}

bool Central::grown() noexcept {
  const Size now = held();
  if (options.split && now >= options.split_from && !sampler().active()) {
    if (sampler().start({options.tau, options.sample})) live_samples.start();
  }
  return now >= options.background_from || large.keeps_much();
}

}  // namespace memoir::malloc_
