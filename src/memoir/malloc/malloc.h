// SPDX-License-Identifier: Apache-2.0
//
// memoir's malloc, without the names of the C library: malloc/preload gives it those. Every function is safe
// on any thread and at any time, from before constructors run until after destructors ran. None throws; none
// sets errno.
//
// The fast paths are here, to be compiled into each entry point, so that the return address is the program's.
#pragma once

#include "memoir/malloc/blocks/free_list.h"
#include "memoir/malloc/thread_heap.h"

#if defined(__GNUC__)
#define MEMOIR_ALWAYS_INLINE inline __attribute__((always_inline))
#endif

namespace memoir::malloc_ {

/// The calling thread's heap. Eight bytes of static TLS: a library that is loaded late finds room for them.
extern thread_local constinit ThreadHeap* this_heap __attribute__((tls_model("initial-exec")));

inline constexpr Size kLargestRequest = Size{1} << 62;  // callers refuse more than PTRDIFF_MAX

/// A block of `size` bytes at a multiple of 16; `return_address` says who asked, `key` in which context.
/// nullptr: no memory.
void* allocate_slowly(ThreadHeap* heap, Size size, ContextKey key, const void* return_address) noexcept;
/// A block above the classes' largest, or at a large alignment. `zero`: set when its bytes are known to be
/// zero.
void* allocate_large(Size size, Size alignment, ContextKey key, const void* return_address,
                     bool* zero) noexcept;
void free_slowly(ThreadHeap* heap, void* block) noexcept;

MEMOIR_ALWAYS_INLINE std::uintptr_t stack_pointer() noexcept {
#if defined(__x86_64__)
  std::uintptr_t pointer;
  asm("mov %%rsp, %0" : "=r"(pointer));
  return pointer;
#else
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#endif
}

MEMOIR_ALWAYS_INLINE ContextKey key_here(const ThreadHeap* heap, const void* return_address) noexcept {
  return ContextTable::key_of(reinterpret_cast<std::uintptr_t>(return_address),
                              heap->stack_base - stack_pointer());
}

/// What is not served at once goes to slow(heap, size, key, return_address), as the last thing here: an entry
/// point that ends with this needs no stack of its own. Throws what slow() throws.
template <class Slow>
MEMOIR_ALWAYS_INLINE void* allocate_or(Size size, const void* return_address, Slow slow) {
  ThreadHeap* const heap = this_heap;
  if (size <= size_classes::kLargest) [[likely]] {
    const auto units = static_cast<std::int64_t>((size + kUnit - 1) / kUnit);
    const SpanPlace* place = heap->direct[0] + place_of(size);
    // The processor guesses right whether there are two rows: while there is one, nothing waits for the hash.
    if (central().sampler().has_rows())
      place += central().sampler().row_of(key_here(heap, return_address)) * kPlaces;
    heap->busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (heap->token.load(std::memory_order_acquire) != kNoToken) [[likely]] {
      Span* const span = place->load(std::memory_order_relaxed);
      if (void* const block = span->free.load(std::memory_order_relaxed); block != nullptr) [[likely]] {
        if ((heap->credit -= units) >= 0) [[likely]] {
          void* const next = free_list::take(block);
          span->free.store(next, std::memory_order_relaxed);
          __builtin_prefetch(next, 1);
          span->count_up();
          heap->busy.store(0, std::memory_order_release);
          return block;
        }
        heap->credit += units;
      }
    }
    heap->busy.store(0, std::memory_order_release);
  }
  return slow(heap, size, key_here(heap, return_address), return_address);
}

MEMOIR_ALWAYS_INLINE void* allocate(Size size, const void* return_address) noexcept {
  return allocate_or(size, return_address,
                     [](ThreadHeap* heap, Size asked, ContextKey key, const void* caller) {
                       return allocate_slowly(heap, asked, key, caller);
                     });
}

/// The calling thread never has a heap of its own: its few blocks are the common one's.
void stay_without_heap() noexcept;

void notified(ThreadHeap* heap, Span* span) noexcept;
/// Of the checked build: ends the program unless the block is live; or, given its size, holds that.
void check_live(const char* call, void* block) noexcept;
void check_size(void* block, Size size) noexcept;

/// `asked`: how many bytes the block holds at least, if its free says so. Only the checked build looks at it.
MEMOIR_ALWAYS_INLINE void free(void* block, [[maybe_unused]] Size asked = 0) noexcept {
  const std::uintptr_t arena = base();  // once: the compiler may not assume that it stays what it is
  const Offset offset = reinterpret_cast<std::uintptr_t>(block) - arena;
  ThreadHeap* const heap = this_heap;
  if (offset < arena_size()) [[likely]] {
    Span* const span = span_of(offset, arena);
    [[maybe_unused]] const Size into = kChecked ? into_span(offset, arena) : 0;
    heap->busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (span->owner.load(std::memory_order_relaxed) == heap->token.load(std::memory_order_acquire))
        [[likely]] {
      if constexpr (kChecked) free_list::check_used("free", span, block, into, asked);
      // The next allocation takes this block, which is in the cache. The checked build keeps it back longer.
      if constexpr (kChecked) {
        free_list::link(block, span->local_free);
        span->local_free = block;
      } else {
        free_list::link(block, span->free.load(std::memory_order_relaxed));
        span->free.store(block, std::memory_order_relaxed);
      }
      if (span->count_down()) [[unlikely]] {
        heap->busy.store(0, std::memory_order_release);
        return notified(heap, span);
      }
      heap->busy.store(0, std::memory_order_release);
      return;
    }
    heap->busy.store(0, std::memory_order_release);
  }
  if constexpr (kChecked) {
    if (asked != 0) check_size(block, asked);
  }
  free_slowly(heap, block);
}

/// A block whose class is known, in the row of that class: for the bound that a perfect predictor gives.
void* allocate_in_row(Size size, size_t row) noexcept;

/// Bytes that the block holds; 0 for what is not a block.
Size size_of(void* block) noexcept;
void* allocate_zeroed(Size size, const void* return_address) noexcept;
/// At a multiple of `alignment`, a power of two.
void* allocate_aligned(Size size, Size alignment, const void* return_address) noexcept;
/// The contents move to a block of the new size if the old one does not fit. nullptr: the old one stands.
void* reallocate(void* block, Size size, const void* return_address) noexcept;

/// Gives back all memory without objects that can be. True when there was some.
bool trim() noexcept;

}  // namespace memoir::malloc_
