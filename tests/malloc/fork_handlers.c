/* SPDX-License-Identifier: Apache-2.0
 *
 * A library whose constructor registers handlers of fork that allocate, before anybody called malloc. With
 * -DPROGRAM, a program that forks while a thread allocates. Written for this project.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int fork_handlers(void);

#ifndef PROGRAM

static int ran;
static void allocate(void) {
  static const size_t sizes[] = {10, 77, 3000, 100000, 700000};
  ++ran;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    char* block = malloc(sizes[i]);
    memset(block, 1, sizes[i]);
    block = realloc(block, sizes[i] * 2);
    free(block);
  }
}
__attribute__((constructor(200))) static void register_handlers(void) {
  pthread_atfork(allocate, allocate, allocate);
}
int fork_handlers(void) { return ran; }

#else

static void* churn(void* unused) {
  for (unsigned i = 1;; i = i * 1664525u + 1013904223u) free(malloc(i % 5000));
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, churn, NULL);
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(100);
      free(malloc(100));
      _exit(fork_handlers() > 0 ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  puts("forked 10 times");
  return 0;
}

#endif
