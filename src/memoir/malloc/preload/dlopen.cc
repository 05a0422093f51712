// SPDX-License-Identifier: Apache-2.0
//
// Libraries that would find the C library's malloc before ours (process/control/exported_names.h). Not in the
// archive: a program that is linked against that has its own dlopen.
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include <atomic>

#include "memoir/malloc/central.h"
#include "memoir/process/control/exported_names.h"

// Names that not every C library's headers have. Only their addresses are used.
extern "C" {
void* reallocarray(void*, size_t, size_t);
void* memalign(size_t, size_t);
void* valloc(size_t);
void* pvalloc(size_t);
size_t malloc_usable_size(void*);
int malloc_trim(size_t);
int mallopt(int, int);
void mallinfo();
void mallinfo2();
void malloc_stats();
void malloc_info();
void cfree(void*);
void* __libc_malloc(size_t);
void __libc_free(void*);
void __libc_cfree(void*);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_reallocarray(void*, size_t, size_t);
void* __libc_memalign(size_t, size_t);
void* __libc_valloc(size_t);
void* __libc_pvalloc(size_t);
int __posix_memalign(void**, size_t, size_t);
}

namespace {

#define MEMOIR_NAME(name) \
  { #name, reinterpret_cast < void*>(&name) }

const memoir::host_control::ExportedName names[] = {
    MEMOIR_NAME(malloc),           MEMOIR_NAME(free),           MEMOIR_NAME(calloc),
    MEMOIR_NAME(realloc),          MEMOIR_NAME(reallocarray),   MEMOIR_NAME(memalign),
    MEMOIR_NAME(aligned_alloc),    MEMOIR_NAME(posix_memalign), MEMOIR_NAME(valloc),
    MEMOIR_NAME(pvalloc),          MEMOIR_NAME(cfree),          MEMOIR_NAME(malloc_usable_size),
    MEMOIR_NAME(malloc_trim),      MEMOIR_NAME(mallopt),        MEMOIR_NAME(mallinfo),
    MEMOIR_NAME(mallinfo2),        MEMOIR_NAME(malloc_stats),   MEMOIR_NAME(malloc_info),
    MEMOIR_NAME(__libc_malloc),    MEMOIR_NAME(__libc_free),    MEMOIR_NAME(__libc_cfree),
    MEMOIR_NAME(__libc_calloc),    MEMOIR_NAME(__libc_realloc), MEMOIR_NAME(__libc_reallocarray),
    MEMOIR_NAME(__libc_memalign),  MEMOIR_NAME(__libc_valloc),  MEMOIR_NAME(__libc_pvalloc),
    MEMOIR_NAME(__posix_memalign),
};

using Dlopen = void*(const char*, int);
std::atomic<Dlopen*> next{nullptr};

}  // namespace

/// A jump to the next dlopen(), which looks at who called it ($ORIGIN, RUNPATH).
extern "C" __attribute__((visibility("default"), used, noinline)) void* dlopen(const char* file, int flags) {
  Dlopen* go_on = next.load(std::memory_order_acquire);
  if (go_on == nullptr) [[unlikely]] {
    go_on = reinterpret_cast<Dlopen*>(dlsym(RTLD_NEXT, "dlopen"));
    if (go_on == nullptr) return nullptr;  // dlerror() says why
    next.store(go_on, std::memory_order_release);
  }
  if (memoir::malloc_::central().handed_on()) return go_on(file, flags);
  return go_on(file, memoir::host_control::before_dlopen(file, flags, names, sizeof names / sizeof *names));
}
