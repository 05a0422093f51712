// SPDX-License-Identifier: Apache-2.0
//
// What a thread allocates from without a lock: for each row (lifetime class) and size class one current span,
// and a list of others that have free blocks. A heap outlives its thread: the next thread that starts takes
// it over with all its spans.
//
//   allocate   direct[row][place of the size] -> its `free` list -> a block     the fast path, malloc.h
//   slow path  local_free, remote frees, pages that come back, blocks not yet linked; then the next
//              available span, then a new one. Every 256 KiB of allocations pass here, and the one whose
//              sample is due: the fast path counts bytes down.
//
// The heaps with the first ids belong to no thread, and are used under their lock: one for threads without a
// heap (before their first call, after their end), one for sampled blocks.
#pragma once

#include <atomic>
#include <utility>

#include "memoir/base/lock.h"
#include "memoir/heap/lifetime/span_rules.h"
#include "memoir/malloc/blocks/span.h"
#include "memoir/malloc/central.h"
#include "memoir/predict/sample_pace.h"

namespace memoir::malloc_ {

inline constexpr size_t kRows = kLifetimeClasses;
inline constexpr size_t kClasses = size_classes::kCount;

inline constexpr HeapId kCommonHeap = 1, kSampleHeap = 2;
inline constexpr HeapId kCentral = 3;  // owns the spans of one block
inline constexpr HeapId kFirstThreadHeap = 4, kMostHeaps = 1 << 16;
inline constexpr HeapId kNoToken = ~HeapId{0};  // equals no owner

// Small sizes have a place for each 16 bytes, so that no table says the class; a class may have several.
inline constexpr Size kSmall = kKiB;
inline constexpr Size kUnit = span_rules::kCounted;
inline constexpr size_t kSmallPlaces = kSmall / kUnit + 1;
inline constexpr size_t kSmallClasses = size_classes::compute(kSmall) + 1;
inline constexpr size_t kPlaces = kSmallPlaces + kClasses - kSmallClasses;
[[gnu::always_inline]] constexpr size_t place_of(Size size) noexcept {
  if (size <= kSmall) [[likely]]
    return (size + kUnit - 1) / kUnit;
  return size_classes::compute(size) + kSmallPlaces - kSmallClasses;
}

/// The places of each class.
struct PlacesOf {
  std::uint8_t first[kClasses], last[kClasses];
};
inline constexpr PlacesOf kPlacesOf = [] {
  static_assert(kPlaces <= 256);
  PlacesOf places{};
  for (size_t i = 0; i < kClasses; ++i) {
    const Size below = i == 0 ? 0 : size_classes::compute_size(i - 1) + 1;
    places.first[i] = static_cast<std::uint8_t>(place_of(below));
    places.last[i] = static_cast<std::uint8_t>(place_of(size_classes::compute_size(i)));
  }
  return places;
}();

/// A span without blocks: allocating from it leads to the slow path.
inline constinit Span no_span{};

/// A place in a thread's array of current spans.
struct SpanPlace : std::atomic<Span*> {
  constexpr SpanPlace() noexcept : atomic(&no_span) {}
};

class alignas(64) ThreadHeap {
 public:
  constexpr explicit ThreadHeap(HeapId id, HeapId token) noexcept : token(token), id_(id) {}

  // --- the fast path's ---
  std::atomic<std::uint32_t> busy{0};
  std::atomic<HeapId> token;      // the heap's id, or kNoToken: the thread must not touch its lists
  std::uintptr_t stack_base = 0;  // where the thread's stack began, about
  std::int64_t credit = 0;        // of 16 bytes each, until an allocation has to take the slow path
  SpanPlace direct[kRows][kPlaces];

  HeapId id() const noexcept { return id_; }
  Lock& lock() noexcept { return lock_; }

  // --- inside (see Inside), or with the lock held where no thread has the heap or it is paused ---
  /// A block of that class, or nullptr. With `sample_due`: set when the thread's next sample is due, and then
  /// no block is taken.
  void* allocate(size_t row, size_t size_class, bool* sample_due) noexcept;
  /// The free that brought used() to `notify`. True when the span ended.
  bool notified(Span* span) noexcept;
  /// A free into a heap that belongs to no thread.
  void free(Span* span, void* block) noexcept;
  /// Takes in what other threads freed into queued spans.
  void drain_queue() noexcept;
  /// Takes in what others freed into this span; it may end.
  void collect(Span* span) noexcept;
  /// Ends the span if it has no used blocks and is in the list; `keep_it`: unless it is the last of its list,
  /// or there is room among the spans that the heap keeps.
  bool end_if_empty(Span* span, bool keep_it) noexcept;
  /// Ends the empty spans that it keeps.
  void end_kept() noexcept;
  /// A freed span of one block, kept for the thread's next request of that length. False: there is no room.
  bool keep_single(Span* span) noexcept;
  /// One of these of that row with so many slots, or up to a quarter more; or nullptr.
  Span* take_single(size_t row, size_t slots) noexcept;
  /// Hands over what it holds for other heaps.
  void flush_held() noexcept;
  /// Gives every empty span back, and what it holds for others. Without a thread, or with it paused.
  void give_back() noexcept;
  /// Of a span in no current place: takes the blocks on pages without used blocks out of the lists and
  /// returns those pages, as a mask. They are not brought back before stripped() says which of them the
  /// system took: the others hold what they held.
  std::uint64_t strip(Span* span) noexcept;
  void stripped(Span* span, std::uint64_t pages, std::uint64_t went) noexcept;

  /// Whether the heap may have grown since this was asked last: true once a MiB, since who looks waits for
  /// what all threads write.
  bool take_growth() noexcept { return std::exchange(grew_, false); }
  /// Counts what the fast path has handed out since this was called last, and `bytes` more. True: the
  /// thread's next sample is due.
  bool count(Size bytes) noexcept;
  /// Counts what the credit covers; false, and nothing is counted, where it is used up.
  bool spend(Size bytes) noexcept {
    const auto units = static_cast<std::int64_t>(bytes / kUnit);
    if (credit < units) return false;
    credit -= units;
    return true;
  }
  /// count() for a block with a span of its own, of which kMostCounted bytes count towards the next sample.
  static constexpr Size kMostCounted = span_rules::kMostCounted;
  bool count_single(Size bytes) noexcept {
    const Size counted = bytes < kMostCounted ? bytes : kMostCounted;
    uncounted_ += bytes - counted;
    return count(counted);
  }
  /// count_single() where that needs nobody else; false, and nothing is counted, where it does.
  bool spend_single(Size bytes) noexcept {
    const Size counted = bytes < kMostCounted ? bytes : kMostCounted;
    if (uncounted_ >= span_rules::kMostUncounted || !spend(counted)) return false;
    uncounted_ += bytes - counted;
    return true;
  }

  /// Keeps the thread out of its lists until resume(); needs the lock. False (and nothing changed) when the
  /// thread stays inside for long. divert() and wait_outside() are its halves, for many heaps with one
  /// barrier between.
  bool pause() noexcept;
  void resume() noexcept;
  void divert() noexcept;
  bool wait_outside() noexcept;

  // --- any thread, no lock ---
  /// Blocks first..last, linked, of a span that this heap owns, freed by another thread.
  static void push_remote(Span* span, void* first, void* last, std::uint64_t count) noexcept;

  // --- the thread itself, inside busy ---
  /// Holds a block of another heap's span back, to push several at once.
  void hold_remote(Span* span, void* block) noexcept;

  std::atomic<std::uint32_t> slow_calls{0};  // how the background sees that a thread is at work
  bool keeps_spans() const noexcept { return kept_slots_.load(std::memory_order_relaxed) != 0; }
  bool holds_blocks() const noexcept { return holds_.load(std::memory_order_relaxed); }
  bool queue_waits() const noexcept { return queue_.load(std::memory_order_relaxed) != 0; }
  // The background's, under its lock: what it saw of `slow_calls`, and for how many looks since.
  std::uint32_t seen_calls = 0, rests = 0;
  bool idle = false;  // no thread has it; under the registry's lock
  bool quiet = true;  // at the last fork, nobody was inside
  ThreadHeap* next_idle = nullptr;

 private:
  struct Held {
    Span* span = nullptr;
    void* first = nullptr;
    void* last = nullptr;
    std::uint64_t count = 0;
  };
  static constexpr std::uint16_t kNeverNotify = 0xffff;  // more than a span has blocks
  static constexpr std::uint32_t kNil = ~std::uint32_t{0};

  bool refill(Span* span) noexcept;
  bool link_more(Span* span) noexcept;
  bool bring_page_back(Span* span) noexcept;
  Span* next_span(size_t row, size_t size_class) noexcept;
  Span* current(size_t row, size_t size_class) const noexcept {
    return direct[row][kPlacesOf.last[size_class]].load(std::memory_order_relaxed);
  }
  void set_current(size_t row, size_t size_class, Span* span) noexcept;
  void set_full(Span* span) noexcept;
  void set_available(Span* span) noexcept;
  void unlink(Span* span) noexcept;
  Span* take_kept(size_t row, size_t size_class) noexcept;
  static Size most_kept() noexcept;
  Span* pop_single(size_t row, size_t length) noexcept;
  bool keep(Span* span) noexcept;
  void unkeep(Span* span) noexcept;
  static void start(Span* span, size_t row, size_t size_class) noexcept;
  void flush(Held& held) noexcept;
  void count_slow_call() noexcept;
  void count_allocated() noexcept;

  HeapId id_;
  Lock lock_;
  HeapId kept_token_ = kNoToken;
  std::atomic<std::uint32_t> queue_{0};  // slot + 1 of the first span in it
  Held held_[span_rules::kHeldSpans] = {};
  std::atomic<bool> holds_{false};                 // there may be blocks in held_
  std::uint32_t available_[kRows][kClasses] = {};  // slot + 1 of the first span of the list
  // Empty spans by their length: so a thread that frees much and asks for it again does not go to the others'
  // lock, and its memory stays in its processor's cache.
  static constexpr size_t kMostSlots = span_rules::kMostKeptSlots;
  static constexpr size_t kMostSingleSlots = span_rules::kMostSingleSlots;
  std::uint32_t kept_[kRows][kMostSlots + 1] = {};  // slot + 1 of the first span of the list
  std::atomic<std::uint32_t> kept_slots_{0};
  // Spans of one block by their length in the same way, apart from those of classes.
  std::uint64_t single_lengths_[kRows] = {};  // a bit for each length - 1 of which there is one
  std::uint32_t singles_[kRows][kMostSingleSlots + 1] = {};  // slot + 1 of the first span of the list
  std::uint32_t single_slots_ = 0, most_single_slots_ = 0;   // `most`: as of the last count()
  Size uncounted_ = 0;                                       // allocated bytes that the others do not know of
  std::int64_t granted_ = 0;                                 // what `credit` was when it was set
  std::uint8_t counts_ = 0;
  bool grew_ = false;
  SampleCountdown sample_;
};

/// The owner, inside its heap: the background waits until it is outside. Costs two plain stores, as a lock
/// would not.
class Inside {
 public:
  explicit Inside(ThreadHeap* heap) noexcept : heap_(heap) {
    for (;;) {
      heap_->busy.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (heap_->token.load(std::memory_order_acquire) != kNoToken) return;
      heap_->busy.store(0, std::memory_order_release);
      const LockGuard wait(heap_->lock());  // until it is no longer paused
    }
  }
  ~Inside() { heap_->busy.store(0, std::memory_order_release); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ThreadHeap* heap_;
};

/// All heaps that ever were, by id; those of dead threads wait in it.
class HeapRegistry {
 public:
  /// A heap for the calling thread, or nullptr when there are no more.
  ThreadHeap* take() noexcept;
  void put_back(ThreadHeap* heap) noexcept;
  ThreadHeap* find(HeapId id) const noexcept { return heaps_[id].load(std::memory_order_acquire); }
  /// So many threads have heaps that one which allocates little need not have its own.
  bool crowded() const noexcept { return taken_.load(std::memory_order_relaxed) >= kCrowd; }
  /// Ids below it may have a heap.
  HeapId end() const noexcept { return kFirstThreadHeap + made_.load(std::memory_order_acquire); }
  Lock& lock() noexcept { return lock_; }

 private:
  Lock lock_;
  std::atomic<ThreadHeap*> heaps_[kMostHeaps] = {};
  std::atomic<HeapId> made_{0};
  ThreadHeap* idle_ = nullptr;
  static constexpr std::uint32_t kCrowd = 64;
  std::atomic<std::uint32_t> taken_{0};
};

inline constinit Forever<HeapRegistry> registry_storage;
inline HeapRegistry& registry() noexcept { return registry_storage.value; }

inline constinit ThreadHeap no_heap{kNobody, kNoToken};  // of threads without one
inline constinit Late<ThreadHeap> common_storage, sample_storage;
inline ThreadHeap& common_heap() noexcept { return common_storage.value; }
inline ThreadHeap& sample_heap() noexcept { return sample_storage.value; }

}  // namespace memoir::malloc_
