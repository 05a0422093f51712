/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's day: load comes, nine tenths of it go, at random. What stays resident is the malloc's doing.
 *
 *   gcc -O2 examples/run.c -o run
 *   ./run; memoir run -- ./run
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kBlocks = 400000 };

static long resident_mib(void) {
  long all = 0, resident = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &all, &resident) != 2) return -1;
  fclose(file);
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

int main(void) {
  static char* blocks[kBlocks];
  srand(1);
  for (int i = 0; i < kBlocks; ++i) {
    const size_t size = 64 + rand() % 1000;
    blocks[i] = malloc(size);
    if (blocks[i] == NULL) return 1;
    memset(blocks[i], 1, size);
  }
  printf("loaded: %ld MiB\n", resident_mib());
  for (int i = 0; i < kBlocks; ++i) {
    if (rand() % 10 != 0) free(blocks[i]), blocks[i] = NULL;
  }
  sleep(3);
  printf("3 s after nine tenths were freed: %ld MiB\n", resident_mib());
  return 0;
}
