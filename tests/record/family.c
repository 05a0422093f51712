// Calls each function of the malloc family once, with sizes that no other call has; says which blocks stay.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
  void* blocks[32];
  int n = 0;
  blocks[n++] = malloc(100001);
  blocks[n++] = calloc(10, 10002);
  blocks[n++] = realloc(NULL, 100003);
  blocks[n] = malloc(50);
  blocks[n] = realloc(blocks[n], 100004), ++n;
  blocks[n++] = reallocarray(NULL, 5, 20001);
  blocks[n++] = memalign(64, 100006);
  blocks[n++] = aligned_alloc(128, 100096);
  if (posix_memalign(&blocks[n++], 4096, 100008) != 0) return 1;
  blocks[n++] = valloc(100009);
  blocks[n++] = pvalloc(100010);
  char* text = malloc(100012);
  memset(text, 'x', 100011);
  text[100011] = 0;
  blocks[n++] = strdup(text);
  free(text);
  free(malloc(100013));
  // A realloc that fails leaves its block: the free is taken back.
  blocks[n] = malloc(100014);
  errno = 0;
  void* const none = realloc(blocks[n++], PTRDIFF_MAX);
  if (none != NULL || errno != ENOMEM) return 2;
  if (malloc(PTRDIFF_MAX) != NULL) return 3;
  if (reallocarray(NULL, SIZE_MAX, 2) != NULL) return 4;
  void* gone = malloc(100015);
  if (realloc(gone, 0) != NULL) return 5;
  free(NULL);
  void* const pages = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages, 3 << 20);
  for (int i = 0; i < n; ++i) printf("%lx %d\n", (unsigned long)blocks[i], i);
  return 0;
}
