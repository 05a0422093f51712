// SPDX-License-Identifier: Apache-2.0
//
// Every form of operator new and delete. libstdc++'s own would call malloc, and every allocation of a C++
// program would have one return address: theirs. Nothing of libstdc++ is linked: C programs are to load
// without it.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <new>

#include "memoir/malloc/malloc.h"

namespace heap = memoir::malloc_;

// libstdc++'s, where the program has it.
extern "C" {
__attribute__((weak)) std::new_handler _ZSt15get_new_handlerv();  // std::get_new_handler()
__attribute__((weak)) void _ZSt17__throw_bad_allocv();            // std::__throw_bad_alloc()
}

#define MEMOIR_NEW __attribute__((visibility("default"), used, noinline))
#define MEMOIR_CALLER __builtin_return_address(0)

namespace {

/// Asks the program's handler for memory until there is some or the handler gives up, by throwing or by not
/// being there.
__attribute__((noinline, cold)) void* try_again(size_t size, size_t alignment, const void* caller,
                                                bool throws) {
  for (;;) {
    const std::new_handler handler = _ZSt15get_new_handlerv != nullptr ? _ZSt15get_new_handlerv() : nullptr;
    if (handler == nullptr) {
      if (!throws) return nullptr;
      if (_ZSt17__throw_bad_allocv != nullptr) _ZSt17__throw_bad_allocv();
      abort();
    }
    handler();
    void* const block = size > PTRDIFF_MAX ? nullptr : heap::allocate_aligned(size, alignment, caller);
    if (block != nullptr) return block;
  }
}

/// For the forms that return null. The program's handler may throw, which only libstdc++ can catch: its own
/// form of new does, around ours that throws.
template <class Form, class... Arguments>
__attribute__((noinline, cold)) void* try_again_quietly(const char* form, size_t size, size_t alignment,
                                                        const void* caller, Arguments... arguments) {
  if (_ZSt15get_new_handlerv == nullptr || _ZSt15get_new_handlerv() == nullptr) return nullptr;
  const auto theirs = reinterpret_cast<Form>(dlsym(RTLD_NEXT, form));
  if (theirs == nullptr) return try_again(size, alignment, caller, false);
  return theirs(size, arguments..., std::nothrow_t{});
}

__attribute__((noinline, cold)) void* try_again_quietly(size_t size, const void* caller) {
  return try_again_quietly<void* (*)(size_t, const std::nothrow_t&)>("_ZnwmRKSt9nothrow_t", size, 16, caller);
}
__attribute__((noinline, cold)) void* try_again_quietly(size_t size, std::align_val_t alignment,
                                                        const void* caller) {
  return try_again_quietly<void* (*)(size_t, std::align_val_t, const std::nothrow_t&)>(
      "_ZnwmSt11align_val_tRKSt9nothrow_t", size, static_cast<size_t>(alignment), caller, alignment);
}

__attribute__((noinline)) void* new_slowly(heap::ThreadHeap* own, size_t size, memoir::ContextKey key,
                                           const void* caller) {
  void* const block = size > PTRDIFF_MAX ? nullptr : heap::allocate_slowly(own, size, key, caller);
  return block != nullptr ? block : try_again(size, 16, caller, true);
}
__attribute__((noinline)) void* new_quietly_slowly(heap::ThreadHeap* own, size_t size, memoir::ContextKey key,
                                                   const void* caller) {
  void* const block = size > PTRDIFF_MAX ? nullptr : heap::allocate_slowly(own, size, key, caller);
  return block != nullptr ? block : try_again_quietly(size, caller);
}

}  // namespace

#define MEMOIR_ALLOCATE(size, slowly) return heap::allocate_or(size, MEMOIR_CALLER, slowly)
#define MEMOIR_ALLOCATE_ALIGNED(size, alignment, again)                                                  \
  void* const block = size > PTRDIFF_MAX                                                                 \
                          ? nullptr                                                                      \
                          : heap::allocate_aligned(size, static_cast<size_t>(alignment), MEMOIR_CALLER); \
  return block != nullptr ? block : again

MEMOIR_NEW void* operator new(size_t size) { MEMOIR_ALLOCATE(size, new_slowly); }
MEMOIR_NEW void* operator new[](size_t size) { MEMOIR_ALLOCATE(size, new_slowly); }
MEMOIR_NEW void* operator new(size_t size, const std::nothrow_t&) noexcept {
  MEMOIR_ALLOCATE(size, new_quietly_slowly);
}
MEMOIR_NEW void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  MEMOIR_ALLOCATE(size, new_quietly_slowly);
}
MEMOIR_NEW void* operator new(size_t size, std::align_val_t alignment) {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment,
                          try_again(size, static_cast<size_t>(alignment), MEMOIR_CALLER, true));
}
MEMOIR_NEW void* operator new[](size_t size, std::align_val_t alignment) {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment,
                          try_again(size, static_cast<size_t>(alignment), MEMOIR_CALLER, true));
}
MEMOIR_NEW void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment, try_again_quietly(size, alignment, MEMOIR_CALLER));
}
MEMOIR_NEW void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment, try_again_quietly(size, alignment, MEMOIR_CALLER));
}

MEMOIR_NEW void operator delete(void* block) noexcept { heap::free(block); }
MEMOIR_NEW void operator delete[](void* block) noexcept { heap::free(block); }
MEMOIR_NEW void operator delete(void* block, size_t size) noexcept { heap::free(block, size); }
MEMOIR_NEW void operator delete[](void* block, size_t size) noexcept { heap::free(block, size); }
MEMOIR_NEW void operator delete(void* block, const std::nothrow_t&) noexcept { heap::free(block); }
MEMOIR_NEW void operator delete[](void* block, const std::nothrow_t&) noexcept { heap::free(block); }
MEMOIR_NEW void operator delete(void* block, std::align_val_t) noexcept { heap::free(block); }
MEMOIR_NEW void operator delete[](void* block, std::align_val_t) noexcept { heap::free(block); }
MEMOIR_NEW void operator delete(void* block, size_t size, std::align_val_t) noexcept {
  heap::free(block, size);
}
MEMOIR_NEW void operator delete[](void* block, size_t size, std::align_val_t) noexcept {
  heap::free(block, size);
}
MEMOIR_NEW void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  heap::free(block);
}
MEMOIR_NEW void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  heap::free(block);
}

// Clang's and tcmalloc's hint of how hot a block will be, as its own forms of new. They are freed by the
// plain forms.
enum class __hot_cold_t : uint8_t {};

MEMOIR_NEW void* operator new(size_t size, __hot_cold_t) { MEMOIR_ALLOCATE(size, new_slowly); }
MEMOIR_NEW void* operator new[](size_t size, __hot_cold_t) { MEMOIR_ALLOCATE(size, new_slowly); }
MEMOIR_NEW void* operator new(size_t size, const std::nothrow_t&, __hot_cold_t) noexcept {
  MEMOIR_ALLOCATE(size, new_quietly_slowly);
}
MEMOIR_NEW void* operator new[](size_t size, const std::nothrow_t&, __hot_cold_t) noexcept {
  MEMOIR_ALLOCATE(size, new_quietly_slowly);
}
MEMOIR_NEW void* operator new(size_t size, std::align_val_t alignment, __hot_cold_t) {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment,
                          try_again(size, static_cast<size_t>(alignment), MEMOIR_CALLER, true));
}
MEMOIR_NEW void* operator new[](size_t size, std::align_val_t alignment, __hot_cold_t) {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment,
                          try_again(size, static_cast<size_t>(alignment), MEMOIR_CALLER, true));
}
MEMOIR_NEW void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&,
                              __hot_cold_t) noexcept {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment, try_again_quietly(size, alignment, MEMOIR_CALLER));
}
MEMOIR_NEW void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&,
                                __hot_cold_t) noexcept {
  MEMOIR_ALLOCATE_ALIGNED(size, alignment, try_again_quietly(size, alignment, MEMOIR_CALLER));
}
