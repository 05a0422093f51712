// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/malloc.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memoir/malloc/background.h"
#include "memoir/malloc/foresight.h"
#include "memoir/malloc/next_malloc.h"

extern "C" __attribute__((weak)) void* __libc_stack_end;

namespace memoir::malloc_ {

thread_local constinit ThreadHeap* this_heap __attribute__((tls_model("initial-exec"))) = &no_heap;

namespace {

using size_classes::kSlot;
using size_classes::kTables;
using span_rules::kLargestSpan;
constexpr Size kLargestSpanAlignment = kSlot;
constexpr Size kLongestSpan = 255 * kSlot;  // where the system has no mapping for a larger block

thread_local constinit bool ended __attribute__((tls_model("initial-exec"))) = false;
thread_local constinit std::uint16_t calls_without_heap __attribute__((tls_model("initial-exec"))) = 0;
thread_local constinit unsigned char frees_without_heap __attribute__((tls_model("initial-exec"))) = 0;
std::atomic<bool> key_made{false};
Lock key_lock;
pthread_key_t key_of_ends;

/// Runs when the thread ends; what it allocates after this is served by the common heap.
void end_thread(void*) noexcept {
  ThreadHeap* const heap = this_heap;
  ended = true;
  this_heap = &no_heap;
  if (heap == &no_heap) return;
  {
    const LockGuard guard(heap->lock());
    heap->token.store(kNoToken, std::memory_order_release);
    heap->give_back();
  }
  registry().put_back(heap);
}

/// Where this thread's stack begins, about: the same for all threads that run the same code.
std::uintptr_t stack_base() noexcept {
  const std::uintptr_t thread = current_thread();
  if (thread == central().first_thread() && &__libc_stack_end != nullptr)
    return reinterpret_cast<std::uintptr_t>(__libc_stack_end);
  return thread;  // lies at the end of a thread's stack
}

ThreadHeap* attach() noexcept {
  if (ended || !central().ready()) return nullptr;
  // Of thousands of threads most allocate little: the common heap will do for that.
  constexpr std::uint16_t kLittle = 256;
  if (calls_without_heap < kLittle && registry().crowded()) {
    ++calls_without_heap;
    return nullptr;
  }
  if (!key_made.load(std::memory_order_acquire)) {
    const LockGuard guard(key_lock);
    if (!key_made.load(std::memory_order_relaxed)) {
      if (pthread_key_create(&key_of_ends, end_thread) != 0) return nullptr;
      key_made.store(true, std::memory_order_release);
    }
  }
  ThreadHeap* const heap = registry().take();
  if (heap == nullptr) return nullptr;
  heap->stack_base = stack_base();
  {
    const LockGuard guard(heap->lock());
    heap->token.store(heap->id(), std::memory_order_release);
  }
  this_heap = heap;
  pthread_setspecific(key_of_ends, heap);  // may call calloc: the heap is in place
  return heap;
}

/// For a thread that has no heap; no_heap when there is none for it. A thread that only frees hands over
/// several blocks at once too. One that frees few needs none: a thread may free others' TLS when it ends,
/// after the last moment at which its heap would be given back. free() leaves errno alone.
ThreadHeap* attach_to_free() noexcept {
  constexpr unsigned char kFew = 16;
  if (frees_without_heap < kFew) {
    ++frees_without_heap;
    return &no_heap;
  }
  const int kept = errno;
  ThreadHeap* const heap = attach();
  errno = kept;
  return heap == nullptr ? &no_heap : heap;
}

[[maybe_unused]] void fetch_to_write(const void* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" : : "r"(address));  // the compiler's own needs a later processor's flag
#else
  __builtin_prefetch(address, 1);
#endif
}

/// `counted`: bytes of it that counted towards the sample.
void sampled(const void* block, Size size, Size counted, ContextKey key, const void* caller) noexcept {
  const Size clock = central().allocated();
  central().sampler().born(block, key, clock, central().held());
  central().live_samples.born(block, caller, central().sampler().weight(counted) * size / counted, clock);
}

void sample_freed(const void* block) noexcept {
  central().sampler().freed(block, central().allocated(), central().held());
  central().live_samples.freed(block);
}

/// A sampled block lies apart, so that its free is seen.
void* allocate_sample(size_t size_class, ContextKey key, const void* caller) noexcept {
  void* block = nullptr;
  {
    const LockGuard guard(sample_heap().lock());
    block = sample_heap().allocate(0, size_class, nullptr);
  }
  const Size size = kTables.size[size_class];
  if (block != nullptr) sampled(block, size, size, key, caller);
  return block;
}

void free_sample(Span* span, void* block) noexcept {
  sample_freed(block);
  const LockGuard guard(sample_heap().lock());
  sample_heap().free(span, block);
}

void* allocate_single(Size size, size_t row, ContextKey key, const void* caller, bool* zero) noexcept {
  const auto lifetime = static_cast<LifetimeClass>(row);
  size_t slots = align_up(size, kSlot) / kSlot;
  ThreadHeap* const heap = this_heap;
  Span* span = nullptr;
  if (heap != &no_heap) {
    const Inside inside(heap);
    span = heap->take_single(row, slots);
    if (span != nullptr && heap->spend_single(span->slots * kSlot)) {  // the rest is as it was
      span->stripped.store(false, std::memory_order_relaxed);
      span->state.store(SpanState::kSingle, std::memory_order_relaxed);
      span->owner.store(kCentral, std::memory_order_release);
      return start_of(span);
    }
  }
  if (span != nullptr) {
    slots = span->slots;  // which the background may be reading: it stays
  } else {
    span = central().new_span(slots, lifetime, *zero, true);
    if (span == nullptr) return nullptr;
    span->slots = static_cast<std::uint8_t>(slots);
  }
  span->blocks = 1;
  span->notify.store(0, std::memory_order_relaxed);
  span->set_used(1);
  span->row = static_cast<std::uint8_t>(lifetime);
  span->gone = 0;
  span->stripped.store(false, std::memory_order_relaxed);
  span->state.store(SpanState::kSingle, std::memory_order_relaxed);
  span->owner.store(kCentral, std::memory_order_release);
  void* const block = start_of(span);
  if (heap == &no_heap) {
    central().add_allocated(slots * kSlot);
    return block;
  }
  bool due = false;
  {
    const Inside inside(heap);
    due = heap->count_single(slots * kSlot);
  }
  if (due) {
    span->stripped.store(true, std::memory_order_relaxed);  // of a single block: it is a sample
    sampled(block, slots * kSlot, ThreadHeap::kMostCounted, key, caller);
    if (foresight().sampled(key, size, heap->stack_base)) wake_to_answer();
  }
  return block;
}

/// The system refused a block: makes room and tries again, first with little work. A block of a class (`size`
/// says how large, else 0) may be a mapping of its own at last.
template <class Allocate>
void* when_refused(Size size, Allocate allocate) noexcept {
  for (const bool thoroughly : {false, true}) {
    make_room(thoroughly);
    if (void* const block = allocate(); block != nullptr) return block;
  }
  return size == 0 ? nullptr : central().large.allocate(size, 16, false).address;
}

void* unready(Size size, Size alignment) noexcept {
  return central().handed_on() ? next_malloc::allocate(size, alignment) : nullptr;
}

}  // namespace

void stay_without_heap() noexcept { ended = true; }

void* allocate_slowly(ThreadHeap* heap, Size size, ContextKey key, const void* return_address) noexcept {
  if (size > size_classes::kLargest) {
    bool zero = false;
    return allocate_large(size, 16, key, return_address, &zero);
  }
  const size_t size_class = size_classes::class_of(size);
  if (heap == &no_heap) {
    heap = attach();
    if (heap == nullptr) {
      if (!central().ready()) return unready(size, 16);
      const auto common = [&]() -> void* {
        const LockGuard guard(common_heap().lock());
        return common_heap().allocate(0, size_class, nullptr);
      };
      void* const block = common();
      return block != nullptr ? block : when_refused(size, common);
    }
  }
  bool sample_due = false, grew = false;
  void* block = nullptr;
  {
    const Inside inside(heap);
    block = heap->allocate(central().sampler().row_of(key), size_class, &sample_due);
    grew = heap->take_growth();
  }
  if (sample_due) {
    block = allocate_sample(size_class, key, return_address);
    if (foresight().sampled(key, size, heap->stack_base)) wake_to_answer();
  }
  if (central().shared_upkeep.load(std::memory_order_relaxed) || (grew && central().grown()))
    wake_background();
  if (central().limit_due.load(std::memory_order_relaxed)) [[unlikely]]
    keep_within_limit(0);
  if (block == nullptr) [[unlikely]] {
    block = when_refused(size, [&] {
      const Inside inside(heap);
      return heap->allocate(central().sampler().row_of(key), size_class, nullptr);
    });
  }
  return block;
}

void* allocate_large(Size size, Size alignment, ContextKey key, const void* return_address,
                     bool* zero) noexcept {
  if (!central().ready()) return unready(size, alignment);
  if (this_heap == &no_heap) attach();
  if (central().limit.due(central().in_memory() + size)) [[unlikely]]
    keep_within_limit(size);
  void* block = nullptr;
  if (size <= kLargestSpan && alignment <= kLargestSpanAlignment)
    block = allocate_single(size, central().sampler().row_of(key), key, return_address, zero);
  const auto as_large = [&] {
    const LargeBlocks::Block large = central().large.allocate(size, alignment, central().may_be_huge());
    *zero = large.zero;
    if (large.address != nullptr) central().add_allocated(size);
    return large.address;
  };
  if (block == nullptr) block = as_large();
  if (block == nullptr) [[unlikely]] {
    const bool span = size <= kLongestSpan && alignment <= kLargestSpanAlignment;
    block = when_refused(0, [&] {
      void* const again = as_large();
      return again != nullptr || !span
                 ? again
                 : allocate_single(size, central().sampler().row_of(key), key, return_address, zero);
    });
  }
  if (central().grown()) wake_background();
  return block;
}

void* allocate_in_row(Size size, size_t row) noexcept {
  if (!central().ready()) return nullptr;
  ThreadHeap* const heap = this_heap == &no_heap ? attach() : this_heap;
  if (heap == nullptr || size > kLargestSpan) return allocate_slowly(&no_heap, size, 0, nullptr);
  void* block = nullptr;
  if (size <= size_classes::kLargest) {
    const Inside inside(heap);
    bool ignored = false;
    const size_t size_class = size_classes::class_of(size);
    block = heap->allocate(row, size_class, &ignored);
    if (ignored) block = heap->allocate(row, size_class, nullptr);
  } else {
    bool zero = false;
    block = allocate_single(size, row, 0, nullptr, &zero);
  }
  if (central().grown()) wake_background();
  return block;
}

void notified(ThreadHeap* heap, Span* span) noexcept {
  bool ended_span = false;
  {
    const Inside inside(heap);
    ended_span = heap->notified(span);
    if (central().shared_upkeep.load(std::memory_order_relaxed))
      heap->count(0);  // the next slow path is near
  }
  // A program that only frees gives memory back too. Who looks waits for what all threads write.
  if (ended_span && (central().shared_upkeep.load(std::memory_order_relaxed) || central().grown()))
    wake_background();
}

void free_slowly(ThreadHeap* heap, void* block) noexcept {
  if (block == nullptr) return;
  const Offset offset = offset_of(block);
  Span* const span = span_with(offset);
  if (span == nullptr) {
    if (central().handed_on()) return next_malloc::free(block);
    if (!central().large.free(block, central().most_kept()))
      misused("free", block, "not a block of this heap, or freed already");
    if (central().large.keeps_much() && central().grown()) wake_background();
    return;
  }
  // The mark is read and then written: another core's line need not come twice.
  if constexpr (kChecked) fetch_to_write(block);
  switch (const HeapId owner = span->owner.load(std::memory_order_relaxed)) {
    case kCentral:
      if (block != start_of(span)) misused("free", block, "inside a block, not at its start");
      if (span->stripped.load(std::memory_order_relaxed)) sample_freed(block);
      if (heap != &no_heap) {
        const Inside inside(heap);
        if (heap->keep_single(span)) return;
      }
      return central().end_span(span);
    case kSampleHeap:
      if constexpr (kChecked) free_list::check_used("free", span, block, into_span(offset, base()));
      return free_sample(span, block);
    case kCommonHeap: {
      if constexpr (kChecked) free_list::check_used("free", span, block, into_span(offset, base()));
      const LockGuard guard(common_heap().lock());
      return common_heap().free(span, block);
    }
    default:
      if constexpr (kChecked) free_list::check_used("free", span, block, into_span(offset, base()));
      if (heap == &no_heap) heap = attach_to_free();
      if (heap != &no_heap) {
        heap->busy.store(1, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        const HeapId token = heap->token.load(std::memory_order_acquire);
        if (token != kNoToken && token != owner) {
          heap->hold_remote(span, block);
          heap->busy.store(0, std::memory_order_release);
          return;
        }
        heap->busy.store(0, std::memory_order_release);
      }
      ThreadHeap::push_remote(span, block, block, 1);  // paused, or without a heap
  }
}

void check_live(const char* call, void* block) noexcept {
  const Offset offset = offset_of(block);
  const Span* const span = span_with(offset);
  if (span == nullptr) {
    if (central().large.size_of(block) != 0) return;
    misused(call, block, "not a block of this heap, or freed already");
  }
  const HeapId owner = span->owner.load(std::memory_order_relaxed);
  if (owner != kCentral) return free_list::check_used(call, span, block, into_span(offset, base()));
  if (block != start_of(span)) misused(call, block, "inside a block, not at its start");
}

void check_size(void* block, Size size) noexcept {
  if (block == nullptr || central().handed_on()) return;
  check_live("free", block);
  if (size > size_of(block)) misused("free", block, "smaller than the size that its free names");
}

Size size_of(void* block) noexcept {
  if (block == nullptr) return 0;
  if (central().handed_on()) return next_malloc::size_of(block);
  const Span* const span = span_with(offset_of(block));
  return span != nullptr ? span->block_size() : central().large.size_of(block);
}

void* allocate_zeroed(Size size, const void* return_address) noexcept {
  if (size <= size_classes::kLargest) {
    void* const block = allocate(size, return_address);
    return block == nullptr ? nullptr : std::memset(block, 0, size);
  }
  bool zero = false;
  void* const block = allocate_large(size, 16, key_here(this_heap, return_address), return_address, &zero);
  return block == nullptr || zero ? block : std::memset(block, 0, size);
}

void* allocate_aligned(Size size, Size alignment, const void* return_address) noexcept {
  if (alignment <= 16) return allocate(size, return_address);
  if (!central().ready()) return unready(size, alignment);
  if (alignment <= kSlot && size <= size_classes::kLargest) {
    // Blocks of a class lie at multiples of its size: one whose size is a multiple of the alignment will do.
    for (size_t i = size_classes::class_of(std::max(size, alignment)); i < kClasses; ++i) {
      if ((kTables.size[i] & (alignment - 1)) == 0) return allocate(kTables.size[i], return_address);
    }
  }
  bool zero = false;
  const Size bytes = std::max(size, size_classes::kLargest + 1);
  return allocate_large(bytes, alignment, key_here(this_heap, return_address), return_address, &zero);
}

void* reallocate(void* block, Size size, const void* return_address) noexcept {
  if (central().handed_on()) return next_malloc::reallocate(block, size);
  const Size old = size_of(block);
  if (old == 0) misused("realloc", block, "not a block of this heap, or freed already");
  if constexpr (kChecked) check_live("realloc", block);
  if (span_with(offset_of(block)) != nullptr) {
    if (size <= old && (size >= old / 2 || old <= 64)) return block;
  } else if (size > kLargestSpan) {
    if (size <= old && size >= old - old / 8) return block;
    if (void* const moved = central().large.resize(block, size); moved != nullptr) return moved;
  }
  void* const fresh = allocate(size, return_address);
  if (fresh == nullptr) return size <= old ? block : nullptr;
  std::memcpy(fresh, block, std::min(size, old));
  free(block);
  return fresh;
}

bool trim() noexcept {
  if (ThreadHeap* const heap = this_heap; heap != &no_heap) {
    const Inside inside(heap);
    heap->give_back();
  }
  return run_upkeep_now();
}

namespace {

// For programs that register handlers of fork before they call malloc: see Central::set_up(). The libraries
// are linked so that this runs before every other constructor, the C library's too.
#if defined(__GLIBC__)
__attribute__((constructor(101))) void be_ready(int, char**, char** environment) noexcept {
  if (environ == nullptr) environment_before_libc = environment;
  central().ready();
}
#else
__attribute__((constructor(101))) void be_ready() noexcept { central().ready(); }
#endif

}  // namespace

}  // namespace memoir::malloc_
