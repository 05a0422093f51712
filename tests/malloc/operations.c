/* SPDX-License-Identifier: Apache-2.0
 *
 * Random operations on two threads that also free each other's blocks: `operations SEED COUNT`. Every block
 * is filled with a pattern of its own, which is looked at before it is freed, moved or resized.
 * `operations order`: the distances between blocks that are handed out one after the other.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 3000, kThreads = 2, kShared = 512 };

struct Block {
  unsigned char* bytes;
  size_t size;
  unsigned char mark;
};
static struct Block shared[kShared]; /* handed from thread to thread */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seed;
static long count;

static uint64_t next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state * 2685821657736338717ull >> 16;
}

static size_t any_size(uint64_t* state) {
  const uint64_t kind = next(state) % 1000;
  if (kind < 700) return next(state) % 300;
  if (kind < 950) return next(state) % 8000;
  if (kind < 996) return next(state) % 200000;
  return next(state) % 2000000;
}

static void fill(struct Block* one, size_t from) {
  if (one->size > from) memset(one->bytes + from, one->mark, one->size - from);
}

static void look(const struct Block* one, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (one->bytes[i] != one->mark) {
      fprintf(stderr, "byte %zu of %zu at %p changed\n", i, one->size, (void*)one->bytes);
      exit(1);
    }
  }
}

static void make(struct Block* one, uint64_t* state) {
  one->size = any_size(state);
  one->mark = (unsigned char)next(state);
  const uint64_t how = next(state) % 10;
  if (how == 0) {
    one->bytes = calloc(1, one->size);
    const unsigned char mark = one->mark;
    one->mark = 0;
    look(one, one->size);
    one->mark = mark;
  } else if (how == 1) {
    one->bytes = memalign((size_t)16 << next(state) % 10, one->size);
  } else {
    one->bytes = malloc(one->size);
  }
  if (one->bytes == NULL) exit(2);
  fill(one, 0);
}

static void drop(struct Block* one) {
  look(one, one->size);
  free(one->bytes);
  one->bytes = NULL;
}

static void* work(void* number) {
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + (uintptr_t)number + 1;
  struct Block* own = calloc(kBlocks, sizeof *own);
  for (long i = 0; i < count; ++i) {
    struct Block* one = &own[next(&state) % kBlocks];
    if (one->bytes == NULL) {
      make(one, &state);
    } else if (next(&state) % 8 == 0) {
      const size_t old = one->size, size = any_size(&state) + 1;
      one->bytes = realloc(one->bytes, size);
      one->size = size;
      look(one, old < size ? old : size);
      fill(one, old);
    } else if (next(&state) % 4 == 0) {
      struct Block* place = &shared[next(&state) % kShared];
      pthread_mutex_lock(&lock);
      const struct Block theirs = *place;
      *place = *one;
      pthread_mutex_unlock(&lock);
      *one = theirs;
    } else {
      drop(one);
    }
  }
  for (int i = 0; i < kBlocks; ++i) {
    if (own[i].bytes != NULL) drop(&own[i]);
  }
  free(own);
  return NULL;
}

static void order(void) {
  char* last = malloc(48);
  for (int i = 0; i < 40; ++i) {
    char* block = malloc(48);
    printf("%ld ", (long)(block - last));
    last = block;
  }
}

int main(int words, char** word) {
  if (words == 2 && strcmp(word[1], "order") == 0) return order(), 0;
  if (words != 3) return 2;
  seed = strtoull(word[1], NULL, 10), count = atol(word[2]);
  for (int round = 0; round < 2; ++round) { /* the second ones take over what the first ones left */
    pthread_t threads[kThreads];
    for (intptr_t i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)(i + 2 * round));
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < kShared; ++i) {
    if (shared[i].bytes != NULL) drop(&shared[i]);
  }
  puts("kept all");
  return 0;
}
