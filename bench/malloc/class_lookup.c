/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds of malloc and free once the malloc tells two lifetime classes apart: `class_lookup [SHORT]`.
 *
 *   dependent   a block is allocated and freed, again and again: each waits for the one before
 *   mixed       random sizes in random places of a table of 4,096
 *
 * Objects that one call makes are kept, those of another are not, until a split has begun if one may. Prints
 * the fastest of many rounds of each; `SHORT`: of few.
 */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kKept = 200000, kPlaces = 4096 };
static void *kept[kKept], *place[kPlaces];
static uint64_t state = 88172645463325252ull;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state * 2685821657736338717ull >> 11;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

__attribute__((noinline)) static void* lasting(void) { return memset(malloc(200), 1, 200); }
__attribute__((noinline)) static void* passing(size_t size) { return memset(malloc(size), 1, size); }

static double dependent(long count) {
  const double begin = now();
  for (long i = 0; i < count; ++i) {
    void* volatile block = malloc(64);
    free(block);
  }
  return (now() - begin) / (double)count;
}

static double mixed(long count) {
  const double begin = now();
  for (long i = 0; i < count; ++i) {
    void** const at = &place[next() % kPlaces];
    free(*at);
    *at = malloc(16 + next() % 500);
  }
  return (now() - begin) / (double)count;
}

int main(int words, char** word) {
  (void)word;
  const int rounds = words > 1 ? 2 : 40;
  const long count = words > 1 ? 10000 : 1000000;
  for (int i = 0; i < kKept; ++i) {
    kept[i] = lasting();
    for (int k = 0; k < 20; ++k) free(passing(300));
  }
  double best[2] = {1e9, 1e9};
  for (int round = 0; round < rounds; ++round) {
    const double one = dependent(count), other = mixed(count);
    if (one < best[0]) best[0] = one;
    if (other < best[1]) best[1] = other;
  }
  malloc_stats();
  printf("%.3f %.3f\n", best[0], best[1]);
  for (int i = 0; i < kKept; ++i) free(kept[i]);
  return 0;
}
