// SPDX-License-Identifier: Apache-2.0
//
// A thread that gives memory back and restores huge pages, so that the program's own threads need not, and so
// that an idle program does too. It starts when the heap outgrows `background_from`, blocks every signal,
// sleeps for good when nothing changes, and starts again in a forked child. Where it is not wanted, or
// refused, or does not come, the program's threads do a bounded share of its work in their slow paths.
#pragma once

#include <sys/uio.h>

#include <atomic>

#include "memoir/base/units.h"
#include "memoir/heap/lifetime/upkeep_rules.h"
#include "memoir/malloc/live_figures.h"
#include "memoir/malloc/thread_heap.h"

namespace memoir::malloc_ {

/// What the background does between two sleeps.
class Upkeep {
 public:
  /// One round. `everything`: gives back all that can be, at once.
  void run(bool everything) noexcept;
  /// Kept large blocks, then free slots, `most` bytes of them or a little more; what went.
  Size release(Size most) noexcept;
  /// As many rounds, of all together a bounded piece of work. True when there was no more.
  bool share(unsigned rounds) noexcept;
  /// Gives back addresses of the arena that no span lies at; bytes.
  static Size give_addresses_back() noexcept;
  /// Whether the last round did or saw anything that makes another one worth its time.
  bool busy() const noexcept { return busy_; }

  struct Figures {
    Size given_back = 0;  // bytes of pages, ever
    Size collapsed = 0;   // regions made huge pages again, ever
    Size live = 0;        // bytes of used blocks when spans were last looked at
    Size rounds = 0;
    Tick cpu = 0;  // nanoseconds of CPU time
  };
  Figures figures() const noexcept { return figures_; }

 private:
  void look_at_heaps(bool everything) noexcept;
  void look_at_spans(bool everything) noexcept;
  void strip_candidates(bool everything) noexcept;
  void give_back_slots(bool everything) noexcept;
  Size give_back_slots(Size most, double fullest, bool everything) noexcept;
  void restore_huge_pages() noexcept;

  /// Ranges that nobody uses, on their way back to the system; `gone` says which went, the last time. Of
  /// pages inside a span the mask goes to `went`.
  struct Leaving {
    static constexpr size_t kMost = 256;
    size_t count = 0;
    iovec ranges[kMost];
    bool gone[kMost];
    std::uint64_t* went[kMost];
    std::uint64_t mask[kMost];
    bool full() const noexcept { return count == kMost; }
    void add(Offset offset, Size size, bool breaks_huge, std::uint64_t* pages_went,
             std::uint64_t pages) noexcept;
  };
  void give_back(Leaving& leaving) noexcept;
  bool gives_up(bool everything) const noexcept;

  UpkeepRules rules_;
  LiveBySize by_size_;  // when spans were last looked at
  bool busy_ = false;
  unsigned looks_ = 0;  // at the spans since anything was allocated
  // Of a share: bytes that may still go, where its look at spans begins, what it saw so far.
  bool shared_ = false;
  Size bytes_left_ = 0;
  size_t look_from_ = 0;
  Size live_ = 0;
  Size last_allocated_ = 0;
  Size refusals_ = 0;     // in a row, in this round
  unsigned rests_ = 0;    // how often it gave up since anything went
  Size rests_until_ = 0;  // the round
  Figures figures_;
};

inline constinit std::atomic<bool> background_wanted{false};      // false: asleep for good, or never started
inline constinit std::atomic<std::uint32_t> background_calls{0};  // since it ran last
inline constexpr std::uint32_t kManyCalls = 256;                  // then somebody looks at whether it runs
/// Starts the background, or wakes it. Cheap when it is awake. The caller holds no lock.
void wake_background_slowly() noexcept;
inline void wake_background() noexcept {
  const std::uint32_t calls = background_calls.load(std::memory_order_relaxed);
  background_calls.store(calls + 1, std::memory_order_relaxed);
  if (!background_wanted.load(std::memory_order_relaxed) || calls >= kManyCalls ||
      central().shared_upkeep.load(std::memory_order_relaxed))
    wake_background_slowly();
}
/// Why there is no background thread; nullptr when there is, or need not be yet.
const char* background_missing() noexcept;

/// There is a question for the model (foresight.h): it is answered soon. The caller holds no lock.
void wake_to_answer() noexcept;

/// One round on the calling thread, giving back all that can be. True when something was given back.
bool run_upkeep_now() noexcept;
/// Looks at the limit of memory, and near it gives back what lies idle: a bounded part, or very near all that
/// can go. `more`: bytes that the program is about to use. The caller holds no lock.
void keep_within_limit(Size more) noexcept;

/// The system refused memory: gives back what is kept, with its addresses, and with `thoroughly` all that can
/// be, unless that was tried a moment ago. True when something went. The caller holds no lock.
bool make_room(bool thoroughly) noexcept;
Upkeep::Figures upkeep_figures() noexcept;

/// Locks everything and keeps all threads out of their lists, and the reverse. For fork.
void prepare_fork() noexcept;
void after_fork(bool child) noexcept;

/// Brings live_figures.h up to date. One thread at a time.
void publish_figures(const Upkeep::Figures& upkeep, const LiveBySize& by_size) noexcept;

/// What lies in regions, counted now: a cache line for each span.
struct RegionFigures {
  Size live = 0;                           // bytes of used blocks
  Size free_blocks[kRows][kClasses] = {};  // of spans, by lifetime class and size class
};
/// The caller has no lock. Threads are at work meanwhile, so sums may be off by what they change.
RegionFigures figures_of_regions() noexcept;

/// The figures that `stats` prints, as text; returns the length.
size_t write_statistics(char* out, size_t room) noexcept;

}  // namespace memoir::malloc_
