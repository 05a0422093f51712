// SPDX-License-Identifier: Apache-2.0
// The smallest allocator that runs a program: one range, never given back. For tests of what proves an
// allocator.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { kHeader = 16 };
static const size_t kRange = (size_t)1 << 36;
static _Atomic(char*) base;
static atomic_size_t used;

static char* range(void) {
  char* now = atomic_load(&base);
  if (now != NULL) return now;
  char* fresh =
      mmap(NULL, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!atomic_compare_exchange_strong(&base, &now, fresh)) return now;
  return fresh;
}

void* aligned_alloc(size_t alignment, size_t size) {
  if (alignment < 16) alignment = 16;
  const size_t whole = kHeader + alignment + (size + 15) / 16 * 16;
  const uintptr_t start = (uintptr_t)range() + atomic_fetch_add(&used, whole) + kHeader;
  char* block = (char*)((start + alignment - 1) / alignment * alignment);
  memcpy(block - kHeader, &size, sizeof size);
  return block;
}
void* malloc(size_t size) { return aligned_alloc(16, size); }
void* memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
void* calloc(size_t number, size_t size) { return malloc(number * size); }
void free(void* block) { (void)block; }
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = aligned_alloc(alignment, size);
  return 0;
}
size_t malloc_usable_size(void* block) {
  size_t size = 0;
  if (block != NULL) memcpy(&size, (char*)block - kHeader, sizeof size);
  return size;
}
void* realloc(void* block, size_t size) {
  const size_t before = malloc_usable_size(block);
  void* fresh = malloc(size);
  return block == NULL ? fresh : memcpy(fresh, block, before < size ? before : size);
}
