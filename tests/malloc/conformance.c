/* SPDX-License-Identifier: Apache-2.0
 *
 * What a malloc owes its callers, one case a name: `conformance NAME`. Ends with 0, or says which line
 * failed.
 * Compiled without knowledge of malloc, so that nothing is optimised away.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: %s does not hold (errno %d)\n", __LINE__, #condition, errno); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)
#define ALIGNED(block, to) ((uintptr_t)(block) % (to) == 0)

void* reallocarray(void*, size_t, size_t);
void free_sized(void*, size_t) __attribute__((weak));
void free_aligned_sized(void*, size_t, size_t) __attribute__((weak));
void cfree(void*) __attribute__((weak));
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

static volatile size_t too_much[] = {SIZE_MAX, SIZE_MAX - 100, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX};
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define FOR_TOO_MUCH(n) for (size_t i_ = 0, n; i_ < LENGTH(too_much) && (n = too_much[i_], 1); ++i_)

static void malloc_(void) {
  void* last = NULL;
  for (size_t size = 0; size < 300000; size += 1 + size / 9) {
    errno = 77;
    unsigned char* block = malloc(size);
    CHECK(block != NULL && ALIGNED(block, 16) && errno == 77);
    CHECK(malloc_usable_size(block) >= size);
    memset(block, 0xa5, malloc_usable_size(block));
    if (last) free(last);
    last = block;
  }
  free(last);
  void *a = malloc(0), *b = malloc(0);
  CHECK(a != NULL && b != NULL && a != b);
  free(a), free(b);
  FOR_TOO_MUCH(n) {
    errno = 0;
    CHECK(malloc(n) == NULL && errno == ENOMEM);
  }
}

static void free_(void) {
  for (size_t size = 1; size < (16 << 20); size *= 3) {
    void* block = malloc(size);
    errno = 77;
    free(block);
    CHECK(errno == 77);
  }
  errno = 77;
  free(NULL);
  CHECK(errno == 77);
  if (cfree) cfree(malloc(10));
}

static void calloc_(void) {
  for (int round = 0; round < 3; ++round) {
    for (size_t size = 1; size < (8 << 20); size += 1 + size / 3) {
      unsigned char* block = calloc(1, size);
      CHECK(block != NULL && ALIGNED(block, 16));
      for (size_t i = 0; i < size; ++i) CHECK(block[i] == 0);
      memset(block, 0xff, malloc_usable_size(block));
      free(block);
    }
  }
  void* none = calloc(0, 10);
  CHECK(none != NULL);
  free(none);
  volatile size_t half = SIZE_MAX / 2 + 1, two = 2, wide = (size_t)1 << 33;
  errno = 0;
  CHECK(calloc(half, two) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(calloc(wide, wide) == NULL && errno == ENOMEM);
  FOR_TOO_MUCH(n) {
    errno = 0;
    CHECK(calloc(1, n) == NULL && errno == ENOMEM);
  }
}

static void realloc_(void) {
  unsigned char* block = realloc(NULL, 10);
  CHECK(block != NULL);
  size_t held = 10;
  memset(block, 1, held);
  static const size_t sizes[] = {5,       100,     99,      5000,   40000,  39000, 600000,
                                 5 << 20, 6 << 20, 3 << 20, 700000, 100000, 300,   1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    errno = 77;
    unsigned char* moved = realloc(block, sizes[i]);
    CHECK(moved != NULL && errno == 77);
    size_t both = held < sizes[i] ? held : sizes[i];
    for (size_t k = 0; k < both; ++k) CHECK(moved[k] == 1);
    block = moved, held = sizes[i];
    memset(block, 1, held);
  }
  FOR_TOO_MUCH(n) {
    errno = 0;
    CHECK(realloc(block, n) == NULL && errno == ENOMEM && block[0] == 1);
  }
  CHECK(realloc(block, 0) == NULL); /* it is freed */
  void* aligned_block = memalign(4096, 100);
  strcpy(aligned_block, "kept");
  aligned_block = realloc(aligned_block, 100000);
  CHECK(strcmp(aligned_block, "kept") == 0);
  free(aligned_block);
}

static void reallocarray_(void) {
  int* numbers = reallocarray(NULL, 10, sizeof(int));
  CHECK(numbers != NULL);
  numbers[9] = 5;
  numbers = reallocarray(numbers, 10000, sizeof(int));
  CHECK(numbers != NULL && numbers[9] == 5);
  volatile size_t half = SIZE_MAX / 2 + 1;
  errno = 0;
  CHECK(reallocarray(numbers, half, 2) == NULL && errno == ENOMEM && numbers[9] == 5);
  free(numbers);
}

static void memalign_(void) {
  for (size_t alignment = 1; alignment <= (8 << 20); alignment *= 2) {
    for (size_t size = 0; size < 200000; size = size * 3 + 1) {
      unsigned char* block = memalign(alignment, size);
      CHECK(block != NULL && ALIGNED(block, alignment) && malloc_usable_size(block) >= size);
      memset(block, 3, malloc_usable_size(block));
      free(block);
    }
  }
  void* odd = memalign(48, 10); /* rounded up */
  CHECK(odd != NULL && ALIGNED(odd, 64));
  free(odd);
  FOR_TOO_MUCH(n) {
    errno = 0;
    CHECK(memalign(64, n) == NULL && errno == ENOMEM);
  }
}

static void posix_memalign_(void) {
  void* block = (void*)1;
  for (size_t alignment = sizeof(void*); alignment <= (4 << 20); alignment *= 2) {
    errno = 77;
    CHECK(posix_memalign(&block, alignment, 1000) == 0 && errno == 77 && ALIGNED(block, alignment));
    free(block);
  }
  block = (void*)1;
  CHECK(posix_memalign(&block, 3, 10) == EINVAL && block == (void*)1);
  CHECK(posix_memalign(&block, 4, 10) == EINVAL);
  CHECK(posix_memalign(&block, 0, 10) == EINVAL);
  FOR_TOO_MUCH(n) {
    errno = 77;
    CHECK(posix_memalign(&block, 64, n) == ENOMEM && block == (void*)1 && errno == 77);
  }
  CHECK(posix_memalign(&block, 64, 0) == 0);
  free(block);
}

static void aligned_alloc_(void) {
  for (size_t alignment = 1; alignment <= (1 << 20); alignment *= 2) {
    void* block = aligned_alloc(alignment, alignment * 3);
    CHECK(block != NULL && ALIGNED(block, alignment));
    free(block);
  }
  volatile size_t odd = 24, huge = SIZE_MAX / 2 + 1;
  errno = 0;
  CHECK(aligned_alloc(odd, 48) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(aligned_alloc(huge, 16) == NULL && errno == ENOMEM);
}

static void valloc_(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* block = valloc(10);
  CHECK(block != NULL && ALIGNED(block, page));
  free(block);
  block = pvalloc(page + 1);
  CHECK(block != NULL && ALIGNED(block, page) && malloc_usable_size(block) >= 2 * page);
  free(block);
  FOR_TOO_MUCH(n) {
    errno = 0;
    CHECK(valloc(n) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(pvalloc(n) == NULL && errno == ENOMEM);
  }
}

static void sized(void) {
  CHECK(free_sized != NULL && free_aligned_sized != NULL);
  free_sized(malloc(100), 100);
  free_aligned_sized(aligned_alloc(64, 128), 64, 128);
  free_sized(NULL, 0);
}

static void usable_size(void) {
  CHECK(malloc_usable_size(NULL) == 0);
  for (size_t size = 1; size < (3 << 20); size = size * 2 + 1) {
    unsigned char* block = malloc(size);
    CHECK(malloc_usable_size(block) >= size && malloc_usable_size(block) <= size + size / 7 + 8192);
    free(block);
  }
}

static void aliases(void) {
  void* block = __libc_malloc(100);
  block = __libc_realloc(block, 200);
  __libc_free(block);
  free(__libc_calloc(3, 3));
  block = __libc_memalign(128, 3);
  CHECK(ALIGNED(block, 128));
  free(block); /* the same heap */
}

/* A library that finds the C library's names first: blocks go there and back. It lies next to this program,
 * which the loader must know to be the one that asks. */
static void deep_binding(void) {
  void* library = dlopen("$ORIGIN/opened.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK(library != NULL);
  void* (*make)(size_t) = (void* (*)(size_t))dlsym(library, "opened_make");
  void* (*grow)(void*, size_t) = (void* (*)(void*, size_t))dlsym(library, "opened_grow");
  char* (*copy)(const char*) = (char* (*)(const char*))dlsym(library, "opened_copy");
  void (*drop)(void*) = (void (*)(void*))dlsym(library, "opened_drop");
  for (size_t size = 1; size < 1 << 20; size *= 3) {
    drop(memset(malloc(size), 1, size));
    free(memset(make(size), 1, size));
    free(memset(grow(malloc(size), 2 * size), 1, 2 * size));
    drop(memset(realloc(make(size), 2 * size), 1, 2 * size));
    CHECK(malloc_usable_size(make(size)) >= size);
  }
  free(copy("there"));
  drop(strdup("and back"));
  CHECK(dlclose(library) == 0);
}

/* The C library asked for its own names, as Python's ctypes does. */
static void by_handle(void) {
  void* library = dlopen("libc.so.6", RTLD_NOW);
  CHECK(library != NULL);
  void* (*make)(size_t) = (void* (*)(size_t))dlsym(library, "malloc");
  void (*drop)(void*) = (void (*)(void*))dlsym(library, "free");
  for (size_t size = 1; size < 1 << 20; size *= 3) {
    drop(memset(malloc(size), 1, size));
    free(memset(make(size), 1, size));
  }
  drop(strdup("text"));
}

static void information(void) {
  enum { kCount = 4000 };
  static void* blocks[kCount];
  for (int i = 0; i < kCount; ++i) memset(blocks[i] = malloc(1000), 1, 1000);
  struct mallinfo2 info = mallinfo2();
  CHECK(info.uordblks >= 1000ull * kCount && info.uordblks < 1500ull * kCount + (4 << 20));
  CHECK(mallinfo().uordblks >= 1000 * kCount);
  for (int i = 0; i < kCount; ++i) /* one of eight stays on nearly every page */
    if (i % 8 != 0) free(blocks[i]);
  CHECK(mallinfo2().uordblks < info.uordblks - 800ull * kCount);
  static char text[1 << 16] = "";
  FILE* stream = fmemopen(text, sizeof text, "w");
  CHECK(malloc_info(0, stream) == 0);
  errno = 0;
  CHECK(malloc_info(1, stream) == -1 && errno == EINVAL);
  fclose(stream);
  CHECK(strstr(text, "<malloc version") != NULL);
  CHECK(strstr(text, "<size from=\"") != NULL); /* free blocks, by size */
  for (int i = 0; i < kCount; i += 8) free(blocks[i]);
  malloc_stats();
  CHECK(mallopt(M_ARENA_MAX, 1) == 1);
  CHECK(malloc_trim(0) == 1);
  CHECK(mallinfo2().uordblks < info.uordblks);
}

/* --- processes and threads --- */

static volatile int stop;
static void* churn(void* seed_) {
  unsigned seed = (unsigned)(uintptr_t)seed_;
  void* blocks[64] = {0};
  while (!stop) {
    unsigned k = rand_r(&seed) % 64;
    free(blocks[k]);
    blocks[k] = malloc(rand_r(&seed) % 5000);
  }
  for (int i = 0; i < 64; ++i) free(blocks[i]);
  return NULL;
}

static void fork_under_load(void) {
  pthread_t threads[3];
  for (uintptr_t i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, churn, (void*)i);
  for (int i = 0; i < 40; ++i) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(20);
      unsigned seed = (unsigned)i;
      for (int k = 0; k < 3000; ++k) free(malloc(rand_r(&seed) % 50000));
      pthread_t thread;
      stop = 1;
      if (pthread_create(&thread, NULL, churn, (void*)5) != 0) _exit(3);
      pthread_join(thread, NULL);
      pid_t grandchild = fork();
      if (grandchild == 0) {
        free(malloc(100));
        _exit(0);
      }
      int status;
      waitpid(grandchild, &status, 0);
      _exit(status != 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
}

static pthread_key_t late_key;
static void late(void* value) {
  /* After the heap's own destructor, in some round: allocate, free, and come back a few times. */
  uintptr_t round = (uintptr_t)value;
  void* block = malloc(100);
  CHECK(block != NULL);
  free(block);
  free(calloc(1, 40000));
  if (round < 4) pthread_setspecific(late_key, (void*)(round + 1));
}
static void* ends(void* unused) {
  (void)unused;
  pthread_setspecific(late_key, (void*)1);
  return malloc(50);
}

static void thread_churn(void) {
  pthread_key_create(&late_key, late);
  for (int i = 0; i < 3000; ++i) {
    pthread_t thread;
    void* block = NULL;
    CHECK(pthread_create(&thread, NULL, ends, NULL) == 0);
    pthread_join(thread, &block);
    CHECK(block != NULL);
    free(block); /* of a dead thread */
  }
  CHECK(mallinfo2().uordblks < (64 << 20));
}

static void* blocks_of_main[100000];
static void* frees(void* unused) {
  (void)unused;
  for (int i = 0; i < 100000; ++i) free(blocks_of_main[i]);
  return NULL;
}
static void remote_frees(void) {
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 100000; ++i) CHECK((blocks_of_main[i] = malloc(64)) != NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, frees, NULL);
    pthread_join(thread, NULL);
  }
  CHECK(mallinfo2().uordblks < (40 << 20)); /* 6 MiB a round */
}

static long resident(void) {
  char line[256];
  long kib = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "Rss: %ld", &kib);
  if (file) fclose(file);
  return kib * 1024;
}

static void idle_gives_back(void) {
  enum { kCount = 200000 };
  void** blocks = malloc(kCount * sizeof *blocks);
  for (int i = 0; i < kCount; ++i) memset(blocks[i] = malloc(1000), 1, 1000);
  long full = resident();
  for (int i = 0; i < kCount; ++i) {
    if (i % 100) free(blocks[i]); /* and then no call any more */
  }
  long after = full;
  int waited = 0;
  /* 5 s on a quiet machine; a busy one starves the background thread, which is not a fault of the malloc */
  for (; waited < 60 && after >= full / 4; ++waited) {
    sleep(1);
    after = resident();
  }
  fprintf(stderr, "%ld MiB, %d s later %ld MiB\n", full >> 20, waited, after >> 20);
  CHECK(after < full / 4);
  for (int i = 0; i < kCount; i += 100) CHECK(*(char*)blocks[i] == 1);
}

static void part_touched(void) {
  enum { kCount = 3000, kSize = 64 << 10 };
  static char* blocks[kCount];
  for (int i = 0; i < kCount; ++i) memset(blocks[i] = malloc(kSize), 1, kSize / 8);
  const long held = resident();
  fprintf(stderr, "%ld MiB of %ld\n", held >> 20, (long)kCount * kSize >> 20);
  CHECK(held < (long)kCount * kSize / 3); /* huge pages would hold all of it */
  for (int i = 0; i < kCount; ++i) CHECK(blocks[i][kSize / 8 - 1] == 1);
}

static void address_limit(void) {
  struct rlimit limit = {400 << 20, 400 << 20};
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  if (fork() == 0) { /* a process that begins under the limit */
    execl("/proc/self/exe", "conformance", "under_limit", (char*)NULL);
    _exit(9);
  }
  int status;
  wait(&status);
  CHECK(status == 0);
}

static void under_limit(void) {
  size_t total = 0;
  char* last = NULL;
  for (;;) {
    errno = 0;
    char* block = malloc(1000);
    if (block == NULL) break;
    memset(block, 1, 1000);
    *(char**)block = last;
    last = block;
    total += 1000;
  }
  CHECK(errno == ENOMEM);
  CHECK(total > 200 << 20); /* half the limit serves small blocks at least */
  while (last) {
    char* next = *(char**)last;
    free(last);
    last = next;
  }
  char* again = malloc(50000);
  CHECK(again != NULL);
  free(again);
}

static void wild(void* block) {
  pid_t child = fork();
  if (child == 0) {
    close(2);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    free(block);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status)); /* it never goes on silently */
}
static void wild_frees(void) {
  static char data[64] __attribute__((aligned(16)));
  char stack[64] __attribute__((aligned(16)));
  wild(data + 16);
  wild(stack + 16);
  char* large = malloc(3 << 20);
  wild(large + 16);
  wild(large + 4096);
  char* middle = malloc(100000);
  wild(middle + 16);
  wild(middle + 8192);
  free(middle);
  wild(middle);
  free(large);
  wild(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

__attribute__((constructor(101))) static void early(void) {
  char* block = malloc(1000);
  if (block == NULL) abort();
  memset(block, 1, 1000);
  free(realloc(block, 100000));
}

static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {{"malloc", malloc_},
             {"free", free_},
             {"calloc", calloc_},
             {"realloc", realloc_},
             {"reallocarray", reallocarray_},
             {"memalign", memalign_},
             {"posix_memalign", posix_memalign_},
             {"aligned_alloc", aligned_alloc_},
             {"valloc", valloc_},
             {"sized", sized},
             {"usable_size", usable_size},
             {"aliases", aliases},
             {"deep_binding", deep_binding},
             {"by_handle", by_handle},
             {"information", information},
             {"fork_under_load", fork_under_load},
             {"thread_churn", thread_churn},
             {"remote_frees", remote_frees},
             {"idle_gives_back", idle_gives_back},
             {"part_touched", part_touched},
             {"address_limit", address_limit},
             {"under_limit", under_limit},
             {"wild_frees", wild_frees}};

int main(int count, char** words) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (count == 2 && strcmp(cases[i].name, words[1]) == 0) {
      cases[i].run();
      return 0;
    }
    if (count == 1) puts(cases[i].name);
  }
  return count == 1 ? 0 : 2;
}
