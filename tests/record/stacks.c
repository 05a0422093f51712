// SPDX-License-Identifier: Apache-2.0
// Known stacks: 1,000 objects of 100 bytes for a moment, 50 of 1,000 at once, 3 of 7 that stay.
#include <stdlib.h>

#define NOT_INLINED __attribute__((noinline))

static void* volatile all[50];

NOT_INLINED void short_lived(void) {
  for (int i = 0; i < 1000; ++i) all[0] = malloc(100), free(all[0]);
}
NOT_INLINED void together(void) {
  for (int i = 0; i < 50; ++i) all[i] = malloc(1000);
}
NOT_INLINED void stays(void) {
  for (int i = 0; i < 3; ++i) all[i] = malloc(7);
}

int main(void) {
  short_lived();
  together();
  for (int i = 0; i < 50; ++i) free(all[i]);
  stays();
  return 0;
}
