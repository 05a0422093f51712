// SPDX-License-Identifier: Apache-2.0
// Programs that use up addresses, mappings or what the system grants them. Each prints what went wrong, or
// nothing.
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int failures = 0;
static void check(int holds, const char* where, int line, const char* what) {
  if (holds) return;
  printf("%s:%d: %s\n", where, line, what);
  ++failures;
}
#define CHECK(condition) check((condition) != 0, __func__, __LINE__, #condition)

static void* nothing(void* argument) { return argument; }

static void threads_start(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static long mappings(void) {
  FILE* const file = fopen("/proc/self/maps", "r");
  long lines = 0;
  for (int c; file != NULL && (c = fgetc(file)) != EOF;) lines += c == '\n';
  if (file != NULL) fclose(file);
  return lines;
}

static long resident_mib(void) {
  long all = 0, resident = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file != NULL && fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
  if (file != NULL) fclose(file);
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

/// What was resident at most. getrusage() would tell of the process that began this one as well.
static long peak_mib(void) {
  FILE* const file = fopen("/proc/self/status", "r");
  char line[200];
  long kib = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "VmHWM: %ld", &kib) != 1) {
  }
  if (file != NULL) fclose(file);
  return kib >> 10;
}

/// Blocks of spans whose addresses alone come to more than any reservation, then small ones.
static void addresses(size_t gib) {
  for (size_t bytes = 0; bytes < gib << 30; bytes += 520000) {
    if (malloc(520000) == NULL) return CHECK(!"malloc(520000)");
  }
  for (int i = 0; i < 200000; ++i) {
    char* const block = malloc(100);
    if (block == NULL) return CHECK(!"malloc(100)");
    *block = 1;
  }
  CHECK(malloc(30000) != NULL);
}

/// Large blocks, of which every second is freed: how many mappings are left for others?
static void large_blocks(size_t count, size_t size) {
  char** const blocks = calloc(count, sizeof *blocks);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = malloc(size);
    if (blocks[i] == NULL) return CHECK(!"malloc of a large block");
    blocks[i][0] = (char)i;
  }
  for (size_t i = 1; i < count; i += 2) {
    errno = 0;
    free(blocks[i]);
    if (errno != 0) return CHECK(!"free changed errno");
  }
  CHECK(mappings() < 20000);
  threads_start();
  for (size_t i = 0; i < count; i += 2) {
    if (blocks[i][0] != (char)i) return CHECK(!"contents changed");
    free(blocks[i]);
  }
  malloc_trim(0);
  CHECK(resident_mib() < 64);
  free(blocks);
}

/// The program has used up its mappings: blocks are allocated and freed all the same, and after a while.
static void no_mappings(size_t milliseconds) {
  enum { kBlocks = 200 };
  static char* blocks[kBlocks];
  static char* small[20000];
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(600000 + i * 5000);
    memset(blocks[i], i, 4096);
  }
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), most = 70000;
  char* const room =
      mmap(NULL, 2 * most * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  size_t taken = 0;
  while (taken < most && mprotect(room + 2 * taken * page, page, PROT_READ) == 0) ++taken;
  CHECK(taken < most);  // else this system has a larger limit
  // No mapping is one with these: the last of them leaves no room even for mappings that grow.
  while (mmap(NULL, page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
  }
  for (int i = 1; i < kBlocks; i += 2) {
    errno = 0;
    free(blocks[i]);
    CHECK(errno == 0);
    blocks[i] = NULL;
  }
  usleep(milliseconds * 1000);
  for (int i = 1; i < kBlocks; i += 2) {
    blocks[i] = calloc(1, 600000 + i * 5000);
    CHECK(blocks[i] != NULL);
    for (int at = 0; blocks[i] != NULL && at < 600000; at += 1000) {
      if (blocks[i][at] != 0) return CHECK(!"calloc's block is not zero");
    }
    if (blocks[i] != NULL) memset(blocks[i], i, 4096);
  }
  for (int i = 0; i < 20000; ++i) CHECK((small[i] = malloc(200)) != NULL);
  for (int i = 0; i < 20000; ++i) free(small[i]);
  for (int i = 0; i < kBlocks; ++i)
    CHECK(blocks[i] == NULL || (blocks[i][0] == (char)i && blocks[i][4095] == (char)i));
  munmap(room, 2 * most * page);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  malloc_trim(0);
  malloc_trim(0);
  threads_start();
  CHECK(resident_mib() < 64);
}

/// Phases of different sizes, of which each alone fits into the limit.
static void phases(int resource, size_t live) {
  static const size_t sizes[] = {64, 700000, 4000, 40000, 100 << 20, 300, 3 << 20, 1000, 250000, 48};
  const struct rlimit limit = {live + live / 2, live + live / 2};
  CHECK(setrlimit(resource, &limit) == 0);
  for (size_t phase = 0; phase < sizeof sizes / sizeof *sizes; ++phase) {
    const size_t size = sizes[phase], count = live / (size + 16);
    char** const blocks = malloc(count * sizeof *blocks);
    for (size_t i = 0; i < count; ++i) {
      blocks[i] = malloc(size);
      if (blocks[i] == NULL) {
        printf("malloc(%zu) fails after %zu of %zu MiB\n", size, i * size >> 20, live >> 20);
        ++failures;
        return;
      }
      blocks[i][0] = (char)i;
    }
    for (size_t i = 0; i < count; ++i) {
      if (blocks[i][0] != (char)i) return CHECK(!"contents changed");
      free(blocks[i]);
    }
    free(blocks);
  }
  threads_start();
}

/// The same as memory that is touched, without a limit of the system.
static void resident(size_t live) {
  static const size_t sizes[] = {64, 700000, 4000, 40000, 50 << 20, 300, 3 << 20, 1000, 250000, 48};
  for (size_t phase = 0; phase < sizeof sizes / sizeof *sizes; ++phase) {
    const size_t size = sizes[phase], count = live / (size + 16);
    char** const blocks = malloc(count * sizeof *blocks);
    for (size_t i = 0; i < count; ++i) memset(blocks[i] = malloc(size), (int)i, size);
    for (size_t i = 0; i < count; ++i) {
      if (blocks[i][size - 1] != (char)i) return CHECK(!"contents changed");
      free(blocks[i]);
    }
    free(blocks);
  }
  const long peak = peak_mib();
  printf("%ld MiB at the peak\n", peak);
  CHECK(peak > 0 && (size_t)peak << 20 < live + live / 4);
}

static pthread_barrier_t meeting;

static sem_t turns;  // else a busy machine decides how many have their blocks at the same time

static void* allocate_a_little(void* unused) {
  char* blocks[200];
  sem_wait(&turns);
  for (int i = 0; i < 200; ++i) memset(blocks[i] = malloc((size_t)16 << i % 9), i, (size_t)16 << i % 9);
  for (int i = 1; i < 200; ++i) free(blocks[i]);
  sem_post(&turns);
  pthread_barrier_wait(&meeting);
  pthread_barrier_wait(&meeting);
  CHECK(blocks[0][15] == 0);
  free(blocks[0]);
  return unused;
}

/// Many threads that allocate a little and rest; then they end.
static void many_threads(size_t count) {
  pthread_t* const threads = malloc(count * sizeof *threads);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  pthread_barrier_init(&meeting, NULL, (unsigned)count + 1);
  sem_init(&turns, 0, 8);
  for (size_t i = 0; i < count; ++i)
    CHECK(pthread_create(&threads[i], &attributes, allocate_a_little, NULL) == 0);
  pthread_barrier_wait(&meeting);
  const long peak = resident_mib();
  pthread_barrier_wait(&meeting);
  for (size_t i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  const long ended = resident_mib();
  malloc_trim(0);  // what is kept ready depends on what the background saw
  printf("%ld MiB at the peak, %ld when they have ended, %ld without what is kept\n", peak, ended,
         resident_mib());
  CHECK(peak < 64 && ended <= peak && resident_mib() < 16);
}

static void come_and_go(void) {
  enum { kBlocks = 250000 };
  static char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) memset(blocks[i] = malloc(400), 1, 400);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  for (int i = 0; i < 20 && resident_mib() >= 32; ++i) {
    usleep(100000);
    free(malloc(400));
  }
}

/// There is no background thread: a load that falls gives back all the same.
static void load_drops(void) {
  come_and_go();
  printf("%ld MiB\n", resident_mib());
  CHECK(resident_mib() < 32);
}

/// As a user who may have no more threads for a while.
static void refused_thread(void) {
  struct rlimit limit = {1, 1000};
  if (setgroups(0, NULL) != 0 || setgid(54321) != 0 || setuid(54321) != 0) {
    printf("not root\n");
    exit(77);
  }
  CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
  load_drops();
  limit.rlim_cur = 1000;
  CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
  come_and_go();
  sleep(1);
  come_and_go();
  int threads = 0;
  char line[256];
  FILE* const file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) sscanf(line, "Threads: %d", &threads);
  CHECK(threads == 2);
}

int main(int count, char** words) {
  const char* const what = count > 1 ? words[1] : "";
  const size_t number = count > 2 ? strtoul(words[2], NULL, 10) : 0;
  if (strcmp(what, "addresses") == 0) addresses(number);
  else if (strcmp(what, "large_blocks") == 0) large_blocks(number, strtoul(words[3], NULL, 10));
  else if (strcmp(what, "no_mappings") == 0) no_mappings(number);
  else if (strcmp(what, "address_space") == 0) phases(RLIMIT_AS, number << 20);
  else if (strcmp(what, "data") == 0) phases(RLIMIT_DATA, number << 20);
  else if (strcmp(what, "resident") == 0) resident(number << 20);
  else if (strcmp(what, "many_threads") == 0) many_threads(number);
  else if (strcmp(what, "load_drops") == 0) load_drops();
  else if (strcmp(what, "refused_thread") == 0) refused_thread();
  else return 2;
  return failures != 0;
}
