/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: mmap, mremap, mprotect and madvise that fail when they are told to. What malloc maps for itself
   does not come through here, so what fails is memoir's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>

static long calls, fail_from, fail_until; /* the calls [from, until) since the last failing_maps_set() fail */

void failing_maps_set(long from, long until) {
  calls = 0;
  fail_from = from;
  fail_until = until;
}
long failing_maps_calls(void) { return calls; }

static int fails(void) {
  const long call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  if (call < fail_from || call >= fail_until) return 0;
  errno = ENOMEM;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  return fails() ? MAP_FAILED : REAL(mmap)(address, size, protection, flags, file, offset);
}
void* mmap64(void* address, size_t size, int protection, int flags, int file, off64_t offset) {
  return fails() ? MAP_FAILED : REAL(mmap64)(address, size, protection, flags, file, offset);
}
void* mremap(void* old, size_t old_size, size_t size, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* const at = flags & MREMAP_FIXED ? va_arg(rest, void*) : 0;
  va_end(rest);
  return fails() ? MAP_FAILED : REAL(mremap)(old, old_size, size, flags, at);
}
int mprotect(void* address, size_t size, int protection) {
  return fails() ? -1 : REAL(mprotect)(address, size, protection);
}
int madvise(void* address, size_t size, int advice) {
  return fails() ? -1 : REAL(madvise)(address, size, advice);
}
