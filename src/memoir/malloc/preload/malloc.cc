// SPDX-License-Identifier: Apache-2.0
//
// The C library's names for malloc/malloc.h. What the C library's own malloc does about errno, zero
// sizes and overflow is done here, and nothing else.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "memoir/malloc/background.h"
#include "memoir/malloc/malloc.h"

// <malloc.h> would declare what is defined here, with attributes that differ between C libraries.
struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

namespace heap = memoir::malloc_;

// The aliases need not repeat what the C library's headers say of the functions.
#if !defined(__clang__)  // which does not know the warning
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

#define MEMOIR_EXPORT extern "C" __attribute__((visibility("default"), used, noinline))
#define MEMOIR_ALIAS(name) __attribute__((visibility("default"), used, alias(#name)))
#define MEMOIR_CALLER __builtin_return_address(0)

namespace {

constexpr size_t kMost = PTRDIFF_MAX;

MEMOIR_ALWAYS_INLINE void* or_no_memory(void* block) {
  if (block == nullptr) [[unlikely]]
    errno = ENOMEM;
  return block;
}

__attribute__((noinline)) void* malloc_slowly(heap::ThreadHeap* own, size_t size, memoir::ContextKey key,
                                              const void* caller) {
  return or_no_memory(size > kMost ? nullptr : heap::allocate_slowly(own, size, key, caller));
}

bool power_of_two(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

[[gnu::always_inline]] inline void* aligned(size_t alignment, size_t size, const void* caller) {
  if (size > kMost || alignment > kMost / 2) return or_no_memory(nullptr);
  return or_no_memory(heap::allocate_aligned(size, alignment, caller));
}

size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

MEMOIR_EXPORT void* malloc(size_t size) { return heap::allocate_or(size, MEMOIR_CALLER, malloc_slowly); }

MEMOIR_EXPORT void free(void* block) { heap::free(block); }

MEMOIR_EXPORT void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > kMost) [[unlikely]]
    return or_no_memory(nullptr);
  return or_no_memory(heap::allocate_zeroed(bytes, MEMOIR_CALLER));
}

MEMOIR_EXPORT void* realloc(void* block, size_t size) {
  if (size > kMost) [[unlikely]]
    return or_no_memory(nullptr);
  if (block == nullptr) return or_no_memory(heap::allocate(size, MEMOIR_CALLER));
  if (size == 0) {  // as glibc does
    heap::free(block);
    return nullptr;
  }
  const int kept = errno;
  void* const moved = heap::reallocate(block, size, MEMOIR_CALLER);
  errno = moved == nullptr ? ENOMEM : kept;
  return moved;
}

MEMOIR_EXPORT void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > kMost) [[unlikely]]
    return or_no_memory(nullptr);
  if (block == nullptr) return or_no_memory(heap::allocate(bytes, MEMOIR_CALLER));
  if (bytes == 0) {
    heap::free(block);
    return nullptr;
  }
  const int kept = errno;
  void* const moved = heap::reallocate(block, bytes, MEMOIR_CALLER);
  errno = moved == nullptr ? ENOMEM : kept;
  return moved;
}

MEMOIR_EXPORT void* memalign(size_t alignment, size_t size) {
  // As glibc: an alignment that is not a power of two is rounded up to one.
  if (alignment > kMost / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  if (!power_of_two(alignment))
    alignment = alignment == 0 ? 16 : size_t{1} << (64 - __builtin_clzl(alignment));
  return aligned(alignment, size, MEMOIR_CALLER);
}

MEMOIR_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  if (!power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned(alignment, size, MEMOIR_CALLER);
}

MEMOIR_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  if (!power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int kept = errno;  // it answers by its result alone
  void* const block = aligned(alignment, size, MEMOIR_CALLER);
  errno = kept;
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}

MEMOIR_EXPORT void* valloc(size_t size) { return aligned(page_size(), size, MEMOIR_CALLER); }

MEMOIR_EXPORT void* pvalloc(size_t size) {
  const size_t page = page_size();
  if (size > kMost - page) return or_no_memory(nullptr);
  return aligned(page, size == 0 ? page : (size + page - 1) & ~(page - 1), MEMOIR_CALLER);
}

MEMOIR_EXPORT size_t malloc_usable_size(void* block) { return heap::size_of(block); }

MEMOIR_EXPORT void cfree(void* block) MEMOIR_ALIAS(free);
MEMOIR_EXPORT void free_sized(void* block, size_t size) { heap::free(block, size); }
MEMOIR_EXPORT void free_aligned_sized(void* block, size_t, size_t size) { heap::free(block, size); }

MEMOIR_EXPORT void* __libc_malloc(size_t) MEMOIR_ALIAS(malloc);
MEMOIR_EXPORT void __libc_free(void*) MEMOIR_ALIAS(free);
MEMOIR_EXPORT void __libc_cfree(void*) MEMOIR_ALIAS(free);
MEMOIR_EXPORT void* __libc_calloc(size_t, size_t) MEMOIR_ALIAS(calloc);
MEMOIR_EXPORT void* __libc_realloc(void*, size_t) MEMOIR_ALIAS(realloc);
MEMOIR_EXPORT void* __libc_reallocarray(void*, size_t, size_t) MEMOIR_ALIAS(reallocarray);
MEMOIR_EXPORT void* __libc_memalign(size_t, size_t) MEMOIR_ALIAS(memalign);
MEMOIR_EXPORT void* __libc_valloc(size_t) MEMOIR_ALIAS(valloc);
MEMOIR_EXPORT void* __libc_pvalloc(size_t) MEMOIR_ALIAS(pvalloc);
MEMOIR_EXPORT int __posix_memalign(void**, size_t, size_t) MEMOIR_ALIAS(posix_memalign);

MEMOIR_EXPORT int malloc_trim(size_t) {
  const int kept = errno;
  const int done = heap::trim() ? 1 : 0;
  errno = kept;
  return done;
}

/// Its parameters are glibc's own: they are accepted, and change nothing.
MEMOIR_EXPORT int mallopt(int, int) { return 1; }

namespace {

struct Totals {
  size_t held, free, large, large_count;  // held by spans and large blocks
};

Totals totals() {
  heap::Central& all = heap::central();
  memoir::LifetimeHeap::Figures figures;
  {
    const memoir::LockGuard guard(all.lock);
    figures = all.heap.figures();
  }
  return {figures.used + all.large.live(), figures.free_resident + all.large.cached(), all.large.live(),
          all.large.count()};
}

}  // namespace

MEMOIR_EXPORT struct mallinfo2 mallinfo2() {
  const Totals now = totals();
  struct mallinfo2 info {};
  info.arena = now.held - now.large + now.free;
  info.hblks = now.large_count;
  info.hblkhd = now.large;
  // Threads are at work meanwhile.
  info.uordblks = std::min(heap::figures_of_regions().live, now.held - now.large) + now.large;
  info.fordblks = now.held - info.uordblks + now.free;
  info.keepcost = now.free;
  return info;
}

MEMOIR_EXPORT struct mallinfo mallinfo() {
  const struct mallinfo2 wide = mallinfo2();
  const auto clip = [](size_t value) { return value > INT32_MAX ? INT32_MAX : static_cast<int>(value); };
  struct mallinfo info {};
  info.arena = clip(wide.arena);
  info.hblks = clip(wide.hblks);
  info.hblkhd = clip(wide.hblkhd);
  info.uordblks = clip(wide.uordblks);
  info.fordblks = clip(wide.fordblks);
  info.keepcost = clip(wide.keepcost);
  return info;
}

MEMOIR_EXPORT void malloc_stats() {
  char text[4096];
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, text, heap::write_statistics(text, sizeof text));
}

MEMOIR_EXPORT int malloc_info(int options, FILE* stream) {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  // Counted before anything is written, since the stream may allocate its buffer. As glibc has it, sizes are
  // of free blocks; a heap is a lifetime class: 0 is short-lived, 1 long-lived.
  const Totals now = totals();
  const heap::RegionFigures found = heap::figures_of_regions();
  bool written = fputs("<malloc version=\"1\">\n", stream) >= 0;
  for (size_t row = 0; row < heap::kRows; ++row) {
    size_t blocks = 0, bytes = 0;
    written &= fprintf(stream, "<heap nr=\"%zu\">\n<sizes>\n", row) > 0;
    for (size_t i = 0; i < heap::kClasses; ++i) {
      const size_t count = found.free_blocks[row][i], size = memoir::size_classes::kTables.size[i];
      const size_t from = i == 0 ? 1 : memoir::size_classes::kTables.size[i - 1] + size_t{1};
      if (count == 0) continue;
      written &= fprintf(stream, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", from,
                         size, count * size, count) > 0;
      bytes += count * size;
      blocks += count;
    }
    written &= fprintf(stream, "</sizes>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n</heap>\n",
                       blocks, bytes) > 0;
  }
  written &= fprintf(stream,
                     "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
                     "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n<system type=\"current\" "
                     "size=\"%zu\"/>\n</malloc>\n",
                     now.free, now.large_count, now.large, now.held + now.free) > 0;
  return written ? 0 : -1;
}

/// The settings, one line each: name, unit, initial value and help, with tabs between. The text stays.
MEMOIR_EXPORT const char* memoir_malloc_settings() {
  static char text[4096];
  heap::describe_malloc_options(text, sizeof text);
  return text;
}

#if defined(MEMOIR_MALLOC_CLASSES)
/// Of a test build: a block whose class is known, 0 for short-lived and more for long-lived.
MEMOIR_EXPORT void* memoir_malloc_class(int lifetime, size_t size) {
  return or_no_memory(size > kMost ? nullptr : heap::allocate_in_row(size, lifetime > 0 ? 1 : 0));
}
#endif

/// Figures at exit, on request.
__attribute__((destructor)) static void report_at_exit() {
  if (heap::central().ready() && heap::central().options.stats) malloc_stats();
}
