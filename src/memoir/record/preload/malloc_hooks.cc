// SPDX-License-Identifier: Apache-2.0
//
// The malloc family, as the program calls it. Each function looks at the mode and jumps on: to the real one,
// or to a version of itself for the observer of that mode, whose return address is then the program's.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "memoir/process/control/control_page.h"
#include "memoir/record/preload/control.h"
#include "memoir/record/preload/everything.h"
#include "memoir/record/preload/real.h"
#include "memoir/record/preload/sampled.h"

#if !defined(__clang__)  // which does not know the warning
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

namespace memoir::record {

namespace {

unsigned log2_of(size_t alignment) noexcept {
  return alignment <= 1 ? 0 : 63u - static_cast<unsigned>(__builtin_clzl(alignment));
}

/// The calls, observed. Not inlined: their frame is the one that the program called.
template <class Observer>
struct Observed {
  __attribute__((noinline)) static void* malloc(size_t size) {
    const auto entry = MEMOIR_ENTRY;
    void* const block = real.malloc(size);
    if (block != nullptr) [[likely]]
      Observer::allocated(block, size, 4, Family::kMalloc, entry);
    else Observer::not_allocated(size);
    return block;
  }
  __attribute__((noinline)) static void free(void* block) {
    const auto entry = MEMOIR_ENTRY;
    if (block == nullptr) return;
    if (is_early(block)) [[unlikely]]
      return;
    Observer::freed(block);
    real.free(block);
    if (is_loader(*reinterpret_cast<void* const*>(entry.slot))) [[unlikely]]
      Observer::modules_changed();
  }
  __attribute__((noinline)) static void* calloc(size_t count, size_t size) {
    const auto entry = MEMOIR_ENTRY;
    void* const block = real.calloc(count, size);
    if (block != nullptr) [[likely]]
      Observer::allocated(block, count * size, 4, Family::kMalloc, entry);
    else Observer::not_allocated(count * size);
    return block;
  }
  __attribute__((noinline)) static void* realloc(void* block, size_t size) {
    const auto entry = MEMOIR_ENTRY;
    if (block == nullptr) {
      void* const fresh = real.realloc(nullptr, size);
      if (fresh != nullptr) Observer::allocated(fresh, size, 4, Family::kMalloc, entry);
      return fresh;
    }
    if (is_early(block)) [[unlikely]] {
      void* const moved = leave_early(block, size);
      if (moved != nullptr) Observer::allocated(moved, size, 4, Family::kMalloc, entry);
      return moved;
    }
    if (size == 0) {  // frees, and may give a block of no bytes
      Observer::freed(block);
      void* const moved = real.realloc(block, 0);
      if (moved != nullptr) Observer::allocated(moved, 0, 4, Family::kMalloc, entry);
      return moved;
    }
    return Observer::reallocated(block, size, entry);
  }
  __attribute__((noinline)) static void* memalign(size_t alignment, size_t size) {
    const auto entry = MEMOIR_ENTRY;
    void* const block = real.memalign(alignment, size);
    if (block != nullptr) Observer::allocated(block, size, log2_of(alignment), Family::kMalloc, entry);
    return block;
  }
  __attribute__((noinline)) static void* aligned_alloc(size_t alignment, size_t size) {
    const auto entry = MEMOIR_ENTRY;
    void* const block = real.aligned_alloc(alignment, size);
    if (block != nullptr) Observer::allocated(block, size, log2_of(alignment), Family::kMalloc, entry);
    return block;
  }
  __attribute__((noinline)) static int posix_memalign(void** result, size_t alignment, size_t size) {
    const auto entry = MEMOIR_ENTRY;
    const int failed = real.posix_memalign(result, alignment, size);
    if (failed == 0 && *result != nullptr)
      Observer::allocated(*result, size, log2_of(alignment), Family::kMalloc, entry);
    return failed;
  }
  __attribute__((noinline)) static void* valloc(size_t size) {
    const auto entry = MEMOIR_ENTRY;
    void* const block = real.valloc(size);
    if (block != nullptr) Observer::allocated(block, size, 12, Family::kMalloc, entry);
    return block;
  }
  __attribute__((noinline)) static void* pvalloc(size_t size) {
    const auto entry = MEMOIR_ENTRY;
    void* const block = real.pvalloc(size);
    if (block != nullptr) Observer::allocated(block, size, 12, Family::kMalloc, entry);
    return block;
  }
};

/// As the real ones, and for blocks of the time before they were known.
inline void free_plainly(void* block) noexcept {
  if (is_early(block)) [[unlikely]]
    return;
  real.free(block);
}
inline void* realloc_plainly(void* block, size_t size) noexcept {
  return is_early(block) ? leave_early(block, size) : real.realloc(block, size);
}

/// Where nothing was decided yet, or somebody asks for something else, a call tries to settle that; where it
/// is too early, it goes straight on.
template <class Concerned, class Sample, class Record, class Plain, class... Arguments>
__attribute__((noinline, cold)) auto unsettled(Concerned concerned, Sample sample, Record record, Plain plain,
                                               Arguments... all) {
  settle();
  const Mode now = mode();
  if (now == Mode::kEverything) return record(all...);
  if (now == Mode::kSampled && concerned()) return sample(all...);
  return plain(all...);
}

}  // namespace

}  // namespace memoir::record

using namespace memoir::record;

// All of these calls are jumps: the function that is jumped to returns to the program. `concerned` says
// whether an allocation or a free concerns the sampler; it is asked once.
#define MEMOIR_DISPATCH(concerned, plain, name, ...)                                                 \
  const std::uint64_t ticket = memoir::host_control::asked();                                        \
  if (ticket == fork_page.tickets.dormant) [[likely]]                                                \
    return plain(__VA_ARGS__);                                                                       \
  if (ticket == fork_page.tickets.everything) [[likely]]                                             \
    return Observed<Everything>::name(__VA_ARGS__);                                                  \
  if (ticket == fork_page.tickets.sampled) [[likely]] {                                              \
    if (!(concerned)) [[likely]]                                                                     \
      return plain(__VA_ARGS__);                                                                     \
    return Observed<Sampled>::name(__VA_ARGS__);                                                     \
  }                                                                                                  \
  return unsettled([=] { return concerned; }, &Observed<Sampled>::name, &Observed<Everything>::name, \
                   [](auto... all) { return plain(all...); }, __VA_ARGS__)

MEMOIR_EXPORT void* malloc(size_t size) { MEMOIR_DISPATCH(Sampled::due(size), real.malloc, malloc, size); }
MEMOIR_EXPORT void free(void* block) { MEMOIR_DISPATCH(Sampled::maybe(block), free_plainly, free, block); }
MEMOIR_EXPORT void* calloc(size_t count, size_t size) {
  MEMOIR_DISPATCH(Sampled::due(count * size), real.calloc, calloc, count, size);
}
MEMOIR_EXPORT void* realloc(void* block, size_t size) {
  MEMOIR_DISPATCH(int{Sampled::due(size)} | int{Sampled::maybe(block)}, realloc_plainly, realloc, block,
                  size);
}
MEMOIR_EXPORT void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) [[unlikely]] {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(block, bytes);
}
MEMOIR_EXPORT void* memalign(size_t alignment, size_t size) {
  MEMOIR_DISPATCH(Sampled::due(size), real.memalign, memalign, alignment, size);
}
MEMOIR_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  MEMOIR_DISPATCH(Sampled::due(size), real.aligned_alloc, aligned_alloc, alignment, size);
}
MEMOIR_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  MEMOIR_DISPATCH(Sampled::due(size), real.posix_memalign, posix_memalign, result, alignment, size);
}
MEMOIR_EXPORT void* valloc(size_t size) { MEMOIR_DISPATCH(Sampled::due(size), real.valloc, valloc, size); }
MEMOIR_EXPORT void* pvalloc(size_t size) { MEMOIR_DISPATCH(Sampled::due(size), real.pvalloc, pvalloc, size); }
MEMOIR_EXPORT void cfree(void* block) { MEMOIR_DISPATCH(Sampled::maybe(block), free_plainly, free, block); }
MEMOIR_EXPORT size_t malloc_usable_size(void* block) {
  if (block != nullptr && is_early(block)) [[unlikely]]
    return 0;
  return real.malloc_usable_size(block);
}
