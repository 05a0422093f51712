/* SPDX-License-Identifier: Apache-2.0
 * A tight loop of malloc and free: of how many bytes, and how often. Prints nanoseconds of processor time a
 * pair. The objects are not used: what is left is the two calls. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char** words) {
  const size_t size = count > 1 ? (size_t)atol(words[1]) : 64;
  const long pairs = count > 2 ? atol(words[2]) : 10000000;
  void* volatile last;
  struct timespec begin, end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  for (long i = 0; i < pairs; ++i) {
    last = malloc(size);
    free(last);
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  const double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
  printf("%.3f\n", seconds * 1e9 / (double)pairs);
  return 0;
}
