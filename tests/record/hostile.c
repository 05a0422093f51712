// What a program may do to a recorder that lives in it: one of them, by name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static void churn(int count, size_t size) {
  for (int i = 0; i < count; ++i) free(malloc(size + i % 64));
}

static volatile int stopped;
static void handler(int number) {
  (void)number;
  free(malloc(7777));
  ++stopped;
}
static int signals(void) {  // a handler allocates; the program spends its time elsewhere than in malloc
  struct sigaction action = {.sa_handler = handler};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, NULL);
  volatile unsigned long spin = 0;
  while (stopped < 200) ++spin;
  often = (struct itimerval){0};
  setitimer(ITIMER_REAL, &often, NULL);
  return 0;
}

static pthread_key_t key;
static void late(void* value) {
  free(value);
  churn(10, 600);
}
static void* body(void* argument) {
  pthread_setspecific(key, malloc(4321));
  churn(100, (size_t)argument);
  return malloc(50);
}
static int threads(void) {
  pthread_key_create(&key, late);
  for (int round = 0; round < 50; ++round) {
    pthread_t all[8];
    for (long i = 0; i < 8; ++i) pthread_create(&all[i], NULL, body, (void*)(100 * i));
    for (int i = 0; i < 8; ++i) {
      void* block;
      pthread_join(all[i], &block);
      free(block);
    }
  }
  return 0;
}

static int forks(void) {
  void* before = malloc(11111);
  for (int i = 0; i < 3; ++i) {
    if (fork() == 0) {
      free(before);
      churn(1000, 22222);
      if (i == 0) _exit(5);
      exit(6);
    }
    int status;
    wait(&status);
    if (WEXITSTATUS(status) != (i == 0 ? 5 : 6)) return 1;
  }
  if (vfork() == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(9);
  }
  int status;
  wait(&status);
  churn(10, 33333);
  return status;
}

static int execs(char** argv) {
  churn(10, 44444);
  execlp(argv[0], argv[0], "churn", (char*)NULL);
  return 9;
}

static int closes(void) {  // all descriptors, among them the recorder's
  churn(1000, 100);
  for (int i = 3; i < 1024; ++i) close(i);
  int other = open("/dev/null", O_WRONLY);
  for (int i = 0; i < 1000; ++i) fcntl(other, F_DUPFD, 3);
  churn(100000, 100);
  return 0;
}

static int limits(void) {  // on the sizes of files: what does not fit is lost, and no signal comes
  struct rlimit limit = {1 << 20, 1 << 20};
  setrlimit(RLIMIT_FSIZE, &limit);
  char* blocks[2000];
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 2000; ++i) blocks[i] = malloc(rand() % 5000);
    for (int i = 0; i < 2000; ++i) free(blocks[i]);
  }
  return 0;
}

static int lifted(void) {  // a limit that goes away again: the events are these, found or lost
  struct rlimit limit = {1 << 20, RLIM_INFINITY}, before;
  getrlimit(RLIMIT_FSIZE, &before);
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 0; i < 600000; ++i) free(malloc(rand() % 5000 + 8));
  setrlimit(RLIMIT_FSIZE, &before);
  usleep(400000);  // it tries again after a while
  for (int i = 0; i < 100000; ++i) free(malloc(rand() % 5000 + 8));
  return 0;
}

static int space(void) {  // on the address space
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 40 << 20;
  setrlimit(RLIMIT_AS, &limit);
  int failed = 0;
  void* blocks[200];
  for (int i = 0; i < 200; ++i) failed += (blocks[i] = malloc(1 << 20)) == NULL;
  for (int i = 0; i < 200; ++i) free(blocks[i]);
  churn(100000, 100);
  return failed > 0 ? 0 : 1;
}

static pthread_barrier_t all_here;
static void* stays(void* argument) {
  churn(1000, (size_t)argument);
  pthread_barrier_wait(&all_here);  // until its memory was looked at
  pthread_barrier_wait(&all_here);
  return NULL;
}
static int memory(void) {  // prints the size of its address space with 16 more threads, in KiB
  pthread_t threads[16];
  pthread_barrier_init(&all_here, NULL, 17);
  for (long i = 0; i < 16; ++i) pthread_create(&threads[i], NULL, stays, (void*)(100 * i));
  pthread_barrier_wait(&all_here);
  char line[128];
  FILE* file = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, "VmSize:", 7)) printf("%ld\n", atol(line + 7));
  fclose(file);
  pthread_barrier_wait(&all_here);
  for (int i = 0; i < 16; ++i) pthread_join(threads[i], NULL);
  return 0;
}

static int libraries(char** argv) {  // the same place in memory, another library
  for (int i = 0; i < 20; ++i) {
    void* library = dlopen(argv[2 + i % 2], RTLD_NOW);
    if (library == NULL) return 1;
    void* (*make)(void) = (void* (*)(void))dlsym(library, "make");
    for (int j = 0; j < 10; ++j) free(make());
    dlclose(library);
  }
  return 0;
}

static ucontext_t back, inside;
static void coroutine(void) {
  for (int i = 0; i < 100; ++i) {
    churn(10, 900);
    swapcontext(&inside, &back);
  }
}
static int coroutines(void) {
  for (int round = 0; round < 5; ++round) {
    void* stack = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = 16384;
    inside.uc_link = &back;
    makecontext(&inside, coroutine, 0);
    for (int i = 0; i < 50; ++i) swapcontext(&back, &inside);
    munmap(stack, 16384);
    churn(100, 901);
  }
  return 0;
}

static __attribute__((noinline)) int deep(int depth) {
  if (depth % 100 == 0) churn(3, 500);
  int result = depth == 0 ? 0 : deep(depth - 1);
  if (depth % 1000 == 0) churn(3, 501);
  return result + 1;
}

// A thread asks for its attributes before anything: the C library allocates while it holds the thread's lock.
static void* ask(void* unused) {
  (void)unused;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) pthread_attr_destroy(&attributes);
  churn(3, 700);
  return NULL;
}
static int attributes(void) {
  for (int i = 0; i < 100; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, ask, NULL);
    pthread_join(thread, NULL);
  }
  return 0;
}

// Says how many pairs it made, each with a size of its own, until it is killed.
static int counts(void) {
  for (unsigned long i = 1;; ++i) {
    free(malloc(1 + i % 100000));
    if (i % 50 == 0) {
      struct timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      unsigned long line[2] = {i, now.tv_sec * 1000000000ul + now.tv_nsec};
      if (pwrite(3, line, sizeof line, 0) != sizeof line) return 1;
    }
  }
}

int main(int count, char** argv) {
  const char* what = count > 1 ? argv[1] : "";
  if (!strcmp(what, "churn")) return churn(1000, 100), 0;
  if (!strcmp(what, "signals")) return signals();
  if (!strcmp(what, "threads")) return threads();
  if (!strcmp(what, "forks")) return forks();
  if (!strcmp(what, "execs")) return execs(argv);
  if (!strcmp(what, "closes")) return closes();
  if (!strcmp(what, "limits")) return limits();
  if (!strcmp(what, "lifted")) return lifted();
  if (!strcmp(what, "space")) return space();
  if (!strcmp(what, "memory")) return memory();
  if (!strcmp(what, "libraries")) return libraries(argv);
  if (!strcmp(what, "coroutines")) return coroutines();
  if (!strcmp(what, "deep")) return deep(20000) == 20001 ? 0 : 1;
  if (!strcmp(what, "attributes")) return attributes();
  if (!strcmp(what, "counts")) return counts();
  if (!strcmp(what, "crash")) return churn(100, 100), raise(SIGSEGV);
  return 2;
}
