// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/next_malloc.h"

#include <dlfcn.h>

namespace memoir::malloc_::next_malloc {

namespace {

// Written once, before the first block is handed out.
void* (*next_malloc)(size_t) = nullptr;
void* (*next_memalign)(size_t, size_t) = nullptr;
void* (*next_realloc)(void*, size_t) = nullptr;
void (*next_free)(void*) = nullptr;
size_t (*next_usable)(void*) = nullptr;

template <class Function>
bool named(Function*& function, const char* name) noexcept {
  function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  return function != nullptr;
}

}  // namespace

bool find() noexcept {
  return named(next_malloc, "malloc") && named(next_memalign, "memalign") && named(next_realloc, "realloc") &&
         named(next_usable, "malloc_usable_size") && named(next_free, "free");
}

void* allocate(Size size, Size alignment) noexcept {
  if (next_free == nullptr) return nullptr;
  return alignment <= 16 ? next_malloc(size) : next_memalign(alignment, size);
}
void* reallocate(void* block, Size size) noexcept { return next_realloc(block, size); }
void free(void* block) noexcept { next_free(block); }
Size size_of(void* block) noexcept { return next_usable(block); }

}  // namespace memoir::malloc_::next_malloc
