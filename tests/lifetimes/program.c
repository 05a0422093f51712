/* SPDX-License-Identifier: Apache-2.0
 * What the tests sample. Each argument is a part of it:
 *   brief N    N objects of 64 bytes, each freed at once
 *   keep N     N objects of 100,000 bytes, never freed
 *   grow N     one object, N times made larger by realloc
 *   hand N     N objects of 10,000 bytes that another thread frees
 *   fork N     a child that goes on with keep N, and is waited for
 *   exec       tries to become a program that is not there
 *   ask        a thread that asks for its attributes before anything else
 *   die        SIGKILL
 *   say        a line, then it waits for a line (while it allocates nothing)
 *   busy       as say, but it goes on with brief and keep until the line comes
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* volatile last;

__attribute__((noinline)) void brief(long count) {
  for (; count > 0; --count) {
    last = malloc(64);
    free(last);
  }
}
__attribute__((noinline)) void keep(long count) {
  for (; count > 0; --count) last = malloc(100000);
}
__attribute__((noinline)) void grow(long count) {
  void* block = NULL;
  for (long i = 1; i <= count; ++i) last = block = realloc(block, (size_t)i * 1000);
  free(block);
}
static void* free_all(void* data) {
  void** const blocks = data;
  for (long i = 0; blocks[i] != NULL; ++i) free(blocks[i]);
  return NULL;
}
__attribute__((noinline)) void hand(long count) {
  void** const blocks = calloc((size_t)count + 1, sizeof *blocks);
  for (long i = 0; i < count; ++i) blocks[i] = malloc(10000);
  pthread_t thread;
  pthread_create(&thread, NULL, free_all, blocks);
  pthread_join(thread, NULL);
  free(blocks);
}
/* The C library allocates while it holds the thread's lock. */
static void* ask(void* data) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) pthread_attr_destroy(&attributes);
  brief(1000);
  return data;
}
static void wait_for_line(int busy) {
  static const char kReady[] = "ready\n";
  if (write(1, kReady, sizeof kReady - 1) < 0) exit(9);
  struct pollfd input = {0, POLLIN, 0};
  while (poll(&input, 1, busy ? 0 : -1) == 0) {
    brief(1000);
    if (rand() % 4 == 0) keep(1);
  }
  char line[16];
  if (read(0, line, sizeof line) < 0) exit(9);
}

int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const char* const what = words[i];
    const long number = i + 1 < count ? atol(words[i + 1]) : 0;
    if (strcmp(what, "brief") == 0) brief(number);
    else if (strcmp(what, "keep") == 0) keep(number);
    else if (strcmp(what, "grow") == 0) grow(number);
    else if (strcmp(what, "hand") == 0) hand(number);
    else if (strcmp(what, "ask") == 0) {
      pthread_t thread;
      pthread_create(&thread, NULL, ask, NULL);
      pthread_join(thread, NULL);
    } else if (strcmp(what, "die") == 0) kill(getpid(), SIGKILL);
    else if (strcmp(what, "exec") == 0) execl("/not/there", "x", (char*)NULL);
    else if (strcmp(what, "say") == 0) wait_for_line(0);
    else if (strcmp(what, "busy") == 0) wait_for_line(1);
    else if (strcmp(what, "fork") == 0) {
      const pid_t child = fork();
      if (child == 0) {
        keep(number);
        exit(0);
      }
      waitpid(child, NULL, 0);
    }
  }
  return 7;
}
