/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to preload behind a malloc: its process sees a system whose pages are -DPAGES=64 (KiB). Addresses
 * have to be multiples of that, and lengths are rounded up, so that what is given back takes its neighbours
 * along. Written for this project.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((uintptr_t)PAGES * 1024)
#define UP(size) (((size) + PAGE - 1) & ~(PAGE - 1))
#define REFUSE_INSIDE_A_PAGE(at, result)     \
  if (((uintptr_t)(at) & (PAGE - 1)) != 0) { \
    errno = EINVAL;                          \
    return result;                           \
  }

/* The system's own call: syscall() of the C library sets errno. */
#define RAW(...) syscall(__VA_ARGS__)

void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  const int fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
  if ((flags & MAP_ANONYMOUS) == 0) return (void*)RAW(SYS_mmap, at, size, protection, flags, file, offset);
  if (fixed) {
    REFUSE_INSIDE_A_PAGE(at, MAP_FAILED)
    return (void*)RAW(SYS_mmap, at, UP(size), protection, flags, file, offset);
  }
  char* const all = (char*)RAW(SYS_mmap, at, UP(size) + PAGE, protection, flags, file, offset);
  if (all == MAP_FAILED) return all;
  char *const begin = (char*)UP((uintptr_t)all), *const end = begin + UP(size);
  if (begin != all) RAW(SYS_munmap, all, begin - all);
  if (end != all + UP(size) + PAGE) RAW(SYS_munmap, end, all + UP(size) + PAGE - end);
  return begin;
}
void* mmap64(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  return mmap(at, size, protection, flags, file, offset);
}
int munmap(void* at, size_t size) {
  REFUSE_INSIDE_A_PAGE(at, -1)
  return (int)RAW(SYS_munmap, at, UP(size));
}
int mprotect(void* at, size_t size, int protection) {
  REFUSE_INSIDE_A_PAGE(at, -1)
  return (int)RAW(SYS_mprotect, at, UP(size), protection);
}
int madvise(void* at, size_t size, int advice) {
  REFUSE_INSIDE_A_PAGE(at, -1)
  return (int)RAW(SYS_madvise, at, UP(size), advice);
}
int mincore(void* at, size_t size, unsigned char* pages) {
  REFUSE_INSIDE_A_PAGE(at, -1)
  for (size_t i = 0; i < UP(size) / PAGE; ++i) {
    unsigned char small[PAGES / 4];
    if (RAW(SYS_mincore, (char*)at + i * PAGE, PAGE, small) != 0) return -1;
    pages[i] = small[0];
  }
  return 0;
}
void* mremap(void* at, size_t old_size, size_t size, int flags, ...) {
  va_list words;
  va_start(words, flags);
  void* const to = va_arg(words, void*);
  va_end(words);
  REFUSE_INSIDE_A_PAGE(at, MAP_FAILED)
  if ((flags & MREMAP_FIXED) != 0) REFUSE_INSIDE_A_PAGE(to, MAP_FAILED)
  old_size = UP(old_size), size = UP(size);
  if ((flags & MREMAP_FIXED) != 0 || size <= old_size)
    return (void*)RAW(SYS_mremap, at, old_size, size, flags, to);
  void* const fresh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return fresh;
  return (void*)RAW(SYS_mremap, at, old_size, size, MREMAP_MAYMOVE | MREMAP_FIXED, fresh);
}
int getpagesize(void) { return (int)PAGE; }
