// SPDX-License-Identifier: Apache-2.0
// For record_kills.py: three threads allocate and free, and count what they have done in a file that it reads
// after them.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kThreads = 3, kSizes = 4096 };

static struct {
  struct {
    _Atomic uint64_t done;
    char apart[56];
  } of[kThreads];
} * counts;

static void* run(void* number) {
  const uintptr_t thread = (uintptr_t)number;
  void* kept[8] = {0};
  // odd sizes, which nothing else asks for
  for (uint64_t i = 0;; ++i) {
    free(kept[i % 8]);
    kept[i % 8] = malloc(65 + (i % kSizes) * 8 + 2 * thread);
    if (kept[i % 8] == NULL) abort();
    atomic_store_explicit(&counts->of[thread].done, i + 1, memory_order_release);
    if (i % 1000 == 999) nanosleep(&(struct timespec){0, 200000}, NULL);
  }
  return NULL;
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const int file = open(arguments[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || counts == MAP_FAILED) return 2;
  for (uintptr_t i = 1; i < kThreads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void*)i) != 0) return 2;
  }
  run((void*)0);
}
