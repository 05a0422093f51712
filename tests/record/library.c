// A library that allocates under a stack of its own: KIND decides how large its frame is.
#include <stdlib.h>

__attribute__((noinline)) void* make(void) {
  volatile char room[KIND];
  room[0] = 1;
  void* block = malloc(300 + KIND);
  room[KIND - 1] = room[0];
  return block;
}
