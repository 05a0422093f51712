// SPDX-License-Identifier: Apache-2.0
//
// A program whose contexts a model may know: it fills more than a small heap, then goes on until the malloc
// says that the model answered for so many contexts (the first argument), or for a minute. Prints how many.
// With a second argument all is done by another thread, and through one function: then only the height of the
// stack tells its contexts apart.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

struct figures {
  uint64_t version, count, changes, number[160];
};

static uint64_t figure(const char* wanted) {
  const struct figures* const all = dlsym(RTLD_DEFAULT, "memoir_malloc_figures");
  const char* name = dlsym(RTLD_DEFAULT, "memoir_malloc_figure_names");
  if (all == NULL || name == NULL) return 0;
  for (uint64_t i = 0; i < all->count; ++i) {
    if (strncmp(name, wanted, strlen(wanted)) == 0 && name[strlen(wanted)] == ' ') return all->number[i];
    name = strchr(name, ' ') + 1;
  }
  return 0;
}

#define CONTEXT(name)                                 \
  __attribute__((noinline)) void* name(size_t size) { \
    void* const block = malloc(size);                 \
    if (block == NULL) exit(3);                       \
    memset(block, 1, size);                           \
    __asm__ volatile("" ::"r"(block) : "memory");     \
    return block;                                     \
  }
CONTEXT(keep_session)
CONTEXT(parse_request)
CONTEXT(render_reply)

__attribute__((noinline)) void serve(int count) {
  for (int i = 0; i < count; ++i) {
    free(parse_request(500));
    free(render_reply(700));
    if (i % 10 == 0) *(void**)keep_session(300) = NULL;
  }
  __asm__ volatile("" ::: "memory");
}

static void* in_a_thread(void* ignored) {
  serve(2000);
  return ignored;
}

static void in_a_coroutine(void) { serve(2000); }

static void serve_elsewhere(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, in_a_thread, NULL) == 0) pthread_join(thread, NULL);
  ucontext_t here, there;
  enum { kStack = 64 << 10 };
  void* const stack = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED || getcontext(&there) != 0) return;
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = kStack;
  there.uc_link = &here;
  makecontext(&there, in_a_coroutine, 0);
  swapcontext(&here, &there);
  munmap(stack, kStack);
}

enum { kHeap = 48 << 20, kBlock = 1000 };

CONTEXT(make_block)

__attribute__((noinline)) void keep_block(void) { *(void**)make_block(kBlock) = NULL; }

__attribute__((noinline)) void use_block(void) {
  char room[256];
  __asm__ volatile("" ::"r"(room) : "memory");  // a height of its own
  free(make_block(kBlock));
}

static void* all_in_a_thread(void* enough) {
  for (int i = 0; i < kHeap / kBlock; ++i) keep_block();
  for (int round = 0; round < 600; ++round) {
    for (int i = 0; i < 20000; ++i) use_block();
    for (int i = 0; i < 500; ++i) keep_block();
    if (figure("foreseen") >= *(uint64_t*)enough && round >= 5) break;
    usleep(20000);
  }
  return NULL;
}

int main(int argc, char** argv) {
  uint64_t enough = argc > 1 ? (uint64_t)atoi(argv[1]) : 0;
  if (argc > 2) {
    pthread_t thread;
    return pthread_create(&thread, NULL, all_in_a_thread, &enough) || pthread_join(thread, NULL);
  }
  for (int i = 0; i < kHeap / kBlock; ++i) *(void**)keep_session(kBlock) = NULL;
  for (int round = 0; round < 600; ++round) {
    serve(5000);
    serve_elsewhere();
    if (figure("foreseen") >= enough && round >= 3) break;
    usleep(100000);
  }
  printf("%d\n", (int)figure("foreseen"));
  return 0;
}
