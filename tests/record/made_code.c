// SPDX-License-Identifier: Apache-2.0
// Code that is made at run time and calls malloc: with a frame pointer (3,000 bytes), without one between
// callers that keep theirs (4,000), and with another number in rbp (5,000).
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void* (*Made)(int);

__attribute__((noinline)) void* callee(int size) {
  void* block = malloc(size);
  __asm__ volatile("" ::"r"(block));
  return block;
}
__attribute__((noinline)) void* outer(Made made, int size) {
  void* block = made(size);
  __asm__ volatile("");
  return block;
}

static unsigned char* end;
static void put(const char* bytes, size_t size) { memcpy(end, bytes, size), end += size; }
/// Makes `before`, a call of callee(), `after`.
static Made make(const char* before, size_t before_size, const char* after, size_t after_size) {
  end = (unsigned char*)(((unsigned long)end + 63) & ~63ul);
  Made made = (Made)end;
  void* target = callee;
  put(before, before_size);
  put("\x48\xb8", 2);  // movabs rax
  put((char*)&target, 8);
  put("\xff\xd0", 2);  // call rax
  put(after, after_size);
  return made;
}
#define MAKE(before, after) make(before, sizeof before - 1, after, sizeof after - 1)

int main(void) {
  end = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Made pointer = MAKE("\x55\x48\x89\xe5", "\x5d\xc3");                // push rbp; mov rbp, rsp
  Made none = MAKE("\x48\x83\xec\x18", "\x48\x83\xc4\x18\xc3");       // sub rsp, 24
  Made other = MAKE("\x55\x48\xc7\xc5\x39\x30\x00\x00", "\x5d\xc3");  // push rbp; mov rbp, 12345
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
  FILE* names = fopen(path, "w");
  if (names != NULL) {
    fprintf(names, "%lx 40 with a pointer\n%lx 40 LazyCompile:*leak /app/x.js:7:3\n%lx 40 one\n%lx 40 two\n",
            (long)pointer, (long)none, (long)other, (long)other);
    fclose(names);
  }
  for (int i = 0; i < 100; ++i) outer(pointer, 3000);
  for (int i = 0; i < 100; ++i) outer(none, 4000);
  for (int i = 0; i < 100; ++i) outer(other, 5000);
  puts(path);
  return 0;
}
