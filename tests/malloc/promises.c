/* SPDX-License-Identifier: Apache-2.0
 *
 * What a malloc promises, wherever it runs (surroundings.h), one case a name:
 *
 *   promises CASE                     here
 *   promises CASE exec WHERE...       there from before it starts
 *   promises CASE now WHERE...        there from the first line of main() on
 *   promises CASE later WHERE...      there when the heap has 24 MiB and had time to start what it starts
 *
 * Prints what any malloc prints, and to standard error what it held. Ends with 1 when contents are wrong.
 */
#define _GNU_SOURCE
#include "surroundings.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: %s does not hold (errno %d)\n", __LINE__, #condition, errno); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

static int where_count;
static char** where_names;

static void enter(void) {
  for (int i = 0; i < where_count; ++i) surround(where_names[i]);
  where_count = 0;
}

/* Of a line of /proc/self/statm that was opened before anything could refuse that. */
static FILE* statm;
static double resident(void) {
  long all = 0, there = 0;
  char text[128] = "";
  if (statm == NULL || pread(fileno(statm), text, sizeof text - 1, 0) <= 0) return -1;
  sscanf(text, "%ld %ld", &all, &there);
  return (double)there * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Idle but for a call now and then, as a server without load, until `enough` or fewer MiB are resident. */
static void idle(double most_seconds, double enough) {
  if (getenv("BUSY") != NULL) return; /* only what it prints is wanted */
  for (const double end = now() + most_seconds; now() < end;) {
    const double there = resident();
    if (there >= 0 && there <= enough) break;
    const struct timespec pause = {0, 20000000};
    if (nanosleep(&pause, NULL) != 0) { /* refused: at work instead */
      for (const double until = now() + 0.02; now() < until;) free(malloc(64));
    }
    free(malloc(64));
  }
}

static uint32_t state = 1;
static uint32_t number(void) { return state = state * 1664525u + 1013904223u; }

static void fill(unsigned char* block, size_t size, uint32_t key) {
  memset(block, (int)(key & 0xff), size < 64 ? size : 64);
  if (size >= 64) block[size - 1] = block[size / 2] = (unsigned char)key;
}
static void check(const unsigned char* block, size_t size, uint32_t key) {
  for (size_t i = 0; i < size && i < 64; ++i) CHECK(block[i] == (key & 0xff));
  if (size >= 64) CHECK(block[size - 1] == (key & 0xff) && block[size / 2] == (key & 0xff));
}

enum { kMany = 200000 };
static unsigned char* blocks[kMany];
static uint32_t sizes[kMany];

static void take(int from, int to, size_t least, size_t most) {
  for (int i = from; i < to; ++i) {
    sizes[i] = (uint32_t)(least + number() % (most - least + 1));
    blocks[i] = malloc(sizes[i]);
    CHECK(blocks[i] != NULL);
    fill(blocks[i], sizes[i], (uint32_t)i);
  }
}
static void leave(int i) {
  check(blocks[i], sizes[i], (uint32_t)i);
  free(blocks[i]);
  blocks[i] = NULL;
}

static void zeroed(int count, size_t least, size_t step) {
  unsigned char* block[200];
  CHECK(count <= 200);
  for (int i = 0; i < count; ++i) {
    const size_t size = least + (size_t)i * step;
    block[i] = calloc(1, size);
    CHECK(block[i] != NULL);
    for (size_t k = 0; k < size; ++k) CHECK(block[i][k] == 0);
    memset(block[i], 0xff, size);
  }
  for (int i = 0; i < count; ++i) free(block[i]);
}

/* 24 MiB, and the time that a thread of the malloc's needs to start. */
static void warm_up(void) {
  take(0, 90000, 200, 340);
  const struct timespec pause = {0, 150000000};
  nanosleep(&pause, NULL);
  enter();
  for (int i = 0; i < 90000; ++i) leave(i);
}

static void contents(void) {
  take(0, 30000, 1, 3000);
  for (int i = 0; i < 30000; i += 2) leave(i);
  zeroed(150, 30000, 700);
  zeroed(12, 500000, 300000);
  unsigned char* block = malloc(700000);
  CHECK(block != NULL);
  memset(block, 3, 700000);
  for (int i = 1; i < 12; ++i) {
    block = realloc(block, 700000 + (size_t)i * 777777);
    CHECK(block != NULL && block[0] == 3 && block[699999] == 3);
  }
  free(block);
  for (int i = 0; i < 6; ++i) {
    unsigned char *small = malloc(2 << 20), *large = malloc((size_t)(5 + i) << 20);
    CHECK(small != NULL && large != NULL);
    memset(small, 1, 2 << 20), memset(large, 1, (size_t)(5 + i) << 20);
    free(small), free(large);
  }
  void* aligned = NULL;
  CHECK(posix_memalign(&aligned, 1 << 16, 100000) == 0 && (uintptr_t)aligned % (1 << 16) == 0);
  free(aligned);
  for (int i = 1; i < 30000; i += 2) leave(i);
}

/* 70 MiB of small blocks, of which one in 200 stays: what is resident when it has been idle. */
static void drop(void) {
  take(0, kMany, 200, 500);
  const double most = resident();
  for (int i = 0; i < kMany; ++i) {
    if (i % 200 != 0) leave(i);
  }
  idle(2.5, most / 2.5);
  fprintf(stderr, "resident %.1f of %.1f\n", resident(), most);
  for (int i = 0; i < kMany; i += 200) leave(i);
  zeroed(100, 30000, 3000);
}

/* Pages inside spans: blocks of several pages, of which one in 16 stays. */
static void inside(void) {
  for (size_t size = 6000; size <= 30000; size += 8000) {
    const int count = (int)(24000000 / size);
    take(0, count, size, size);
    for (int i = 0; i < count; ++i) {
      if (i % 16 != 5) leave(i);
    }
    idle(0.45, 0);
    for (int i = 5; i < count; i += 16) leave(i);
    zeroed(120, 40 << 10, 1 << 10);
  }
}

static void trim(void) {
  take(0, kMany, 200, 500);
  for (int i = 0; i < kMany; ++i) {
    if (i % 200 != 0) leave(i);
  }
  const double before = resident(), began = now();
  for (int i = 0; i < 5; ++i) malloc_trim(0);
  fprintf(stderr, "resident %.1f of %.1f\ntrim %.3f s\n", resident(), before, now() - began);
  for (int i = 0; i < kMany; i += 200) leave(i);
  zeroed(100, 30000, 3000);
}

static int stop;
static void* churn(void* seed) {
  unsigned state_of_thread = (unsigned)(uintptr_t)seed;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    state_of_thread = state_of_thread * 1664525u + 1013904223u;
    const size_t size = 1 + state_of_thread % 5000;
    unsigned char* block = malloc(size);
    if (block != NULL) fill(block, size, (uint32_t)size), check(block, size, (uint32_t)size);
    free(block);
  }
  return NULL;
}

static void forks(void) {
  pthread_t thread;
  const int threaded = pthread_create(&thread, NULL, churn, (void*)7) == 0;
  take(0, 20000, 10, 2000);
  int forked = 0;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(100);
      for (int k = 0; k < 20000; k += 2) leave(k);
      zeroed(20, 1000, 9000);
      _exit(0);
    }
    int status = 0;
    if (child < 0) continue;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    ++forked;
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  if (threaded) pthread_join(thread, NULL);
  for (int k = 0; k < 20000; ++k) leave(k);
  printf("forked %d times\n", forked);
}

static void threads(void) {
  pthread_t made[8];
  int count = 0;
  while (count < 8 && pthread_create(&made[count], NULL, churn, (void*)(uintptr_t)(count + 1)) == 0) ++count;
  take(0, 60000, 10, 1000);
  for (int i = 0; i < 60000; ++i) leave(i);
  idle(0.2, 0);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < count; ++i) pthread_join(made[i], NULL);
  printf("%d threads\n", count);
}

static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {{"contents", contents}, {"drop", drop},   {"inside", inside},
             {"trim", trim},         {"forks", forks}, {"threads", threads}};

int main(int count, char** words) {
  if (count < 2) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) puts(cases[i].name);
    return 0;
  }
  if (count > 3) where_count = count - 3, where_names = words + 3;
  if (count > 3 && strcmp(words[2], "exec") == 0) {
    enter();
    execl(words[0], words[0], words[1], (char*)NULL);
    perror("exec");
    return 2;
  }
  alarm(110); /* what hangs ends */
  statm = fopen("/proc/self/statm", "r");
  if (count > 3 && strcmp(words[2], "now") == 0) enter();
  if (where_count != 0) warm_up();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(cases[i].name, words[1]) == 0) {
      cases[i].run();
      printf("%s is kept\n", words[1]);
      return 0;
    }
  }
  return 2;
}
