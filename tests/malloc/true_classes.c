// SPDX-License-Identifier: Apache-2.0
//
// A program that knows how long its objects live, as experiments do: short-lived and long-lived ones by
// turns. Prints the regions of 2 MiB that have both.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((weak)) void* memoir_malloc_class(int lifetime, size_t size);

enum { kCount = 1 << 17, kRegions = 1 << 16 };
static unsigned char seen[kRegions];

int main(void) {
  if (memoir_malloc_class == NULL) return puts("no classes"), 1;
  uintptr_t first = (uintptr_t)memoir_malloc_class(0, 16) >> 21;
  for (int i = 0; i < kCount; ++i) {
    char* const block = memoir_malloc_class(i % 2 * 5, 16 + i % 300);
    if (block == NULL) return puts("no memory"), 1;
    block[0] = 1;
    const uintptr_t region = ((uintptr_t)block >> 21) - first + kRegions / 2;
    if (region < kRegions) seen[region] |= 1 << i % 2;
    if (i % 7 == 0) free(block);
  }
  void* const large = memoir_malloc_class(1, 300 << 10);
  free(large);
  free(memoir_malloc_class(1, 5 << 20));
  int both = 0, any = 0;
  for (int i = 0; i < kRegions; ++i) any += seen[i] != 0, both += seen[i] == 3;
  printf("%d of %d\n", both, any);
  return any < 5;
}
