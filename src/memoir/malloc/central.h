// SPDX-License-Identifier: Apache-2.0
//
// What all threads share: the heap of spans with its lock, the large blocks, the learner. Nothing of it runs
// on the fast path.
//
// Locks are taken in this order: the registry of heaps, a thread's heap, the samples' heap, the central lock;
// the locks of large blocks, of the sampler and of the live samples are taken last and alone.
#pragma once

#include <atomic>
#include <new>

#include "memoir/base/lock.h"
#include "memoir/heap/lifetime/lifetime_heap.h"
#include "memoir/malloc/blocks/address_map.h"
#include "memoir/malloc/blocks/huge_pages.h"
#include "memoir/malloc/blocks/large_blocks.h"
#include "memoir/malloc/blocks/malloc_options.h"
#include "memoir/malloc/learning/live_learner.h"
#include "memoir/malloc/learning/live_samples.h"
#include "memoir/malloc/memory_limit.h"

namespace memoir::malloc_ {

/// An object that is there before constructors run and after destructors ran.
template <class T>
union Forever {
  constexpr Forever() noexcept : value() {}
  ~Forever() {}
  T value;
};

/// The same for what is large, or points elsewhere, and is not needed before Central::ready(), which begins
/// it: until then it is zeros, which take no room in the library's file.
template <class T>
union Late {
  constexpr Late() noexcept : zeros() {}
  ~Late() {}
  template <class... Arguments>
  void begin(Arguments... arguments) noexcept {
    ::new (static_cast<void*>(&value)) T(arguments...);
  }
  T value;
  unsigned char zeros[sizeof(T)];
};

inline constinit Late<LiveLearner> learner_storage;

class Central {
 public:
  /// Reads the settings and chooses addresses, once. Any thread, any time.
  bool ready() noexcept { return state_.load(std::memory_order_acquire) == kReady || set_up(); }

  /// Whether the malloc that the program would have without this one serves all (next_malloc.h), since this
  /// one cannot be ready.
  bool handed_on() const noexcept { return state_.load(std::memory_order_acquire) == kHandedOn; }

  /// The thread that set it up, the program's main one unless the library was loaded late. No call of the
  /// system says so.
  std::uintptr_t first_thread() const noexcept { return first_thread_; }

  /// A span whose slots point back to its record; the other fields are the caller's. `whole`: it is one
  /// block. nullptr: no memory.
  Span* new_span(size_t slots, LifetimeClass lifetime, bool& zero, bool whole = false) noexcept;
  void end_span(Span* span) noexcept;

  /// Bytes that the heap holds for objects: its spans and large blocks.
  Size held() const noexcept { return used_.load(std::memory_order_relaxed) + large.live() + large.cached(); }
  /// Bytes that the malloc has in memory, or had when a span was last taken.
  Size in_memory() const noexcept {
    return resident_.load(std::memory_order_relaxed) + large.live() + large.cached();
  }
  void count_in_memory() noexcept {
    const LockGuard guard(lock);
    resident_.store(heap.figures().resident, std::memory_order_relaxed);
  }
  /// Freed large blocks that are kept at most.
  Size most_kept() const noexcept { return limit.near() ? 0 : options.cache; }
  /// Whether large blocks and new regions ask for huge pages.
  bool may_be_huge() const noexcept { return options.huge && !limit.near(); }
  /// Counts allocated bytes on behalf of a thread.
  void add_allocated(Size bytes) noexcept { allocated_.fetch_add(bytes, std::memory_order_relaxed); }
  /// How many spans ended so far.
  std::uint64_t spans_ended() const noexcept { return spans_ended_.load(std::memory_order_relaxed); }
  Size allocated() const noexcept { return allocated_.load(std::memory_order_relaxed); }

  /// What outgrew its limit starts: the learner at once; returns whether the background thread is wanted now.
  bool grown() noexcept;

  /// There is no background thread now, and memory to give back: the program's threads take the slow path
  /// more often and do a share there.
  std::atomic<bool> shared_upkeep{false};

  MemoryLimit limit;
  std::atomic<bool> limit_due{false};  // somebody should look at it

  alignas(64) Lock lock;
  LifetimeHeap heap;  // under `lock`
  HugePages huge_pages;
  LargeBlocks large;
  static LiveLearner& sampler() noexcept { return learner_storage.value; }
  LiveSamples live_samples;
  alignas(64) MallocOptions options;  // constant once ready

 private:
  enum : std::uint32_t { kFresh, kSettingUp, kReady, kBroken, kHandedOn };
  bool set_up() noexcept;
  bool grow(bool whole) noexcept;

  // Lines of their own: the first is read often and written once, the others are written by all threads.
  alignas(64) std::atomic<std::uint32_t> state_{kFresh};
  std::uintptr_t first_thread_ = 0;
  alignas(64) std::atomic<Size> used_{0};
  std::atomic<Size> resident_{0};  // of the arena, when a span was last taken
  std::atomic<std::uint64_t> spans_ended_{0};
  alignas(64) std::atomic<Size> allocated_{0};
};

inline constinit Forever<Central> central_storage;
inline Central& central() noexcept { return central_storage.value; }

}  // namespace memoir::malloc_
