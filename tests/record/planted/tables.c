/* Written for this project: C with an allocator of its own around malloc, and qsort in between. */
#include <stdlib.h>
#include <string.h>

static void* xmalloc(size_t size) {
  void* made = malloc(size);
  if (!made) abort();
  return made;
}

struct entry {
  char* key;
  struct entry* next;
} * table[64];

__attribute__((noinline)) void table_put(int number) { /* the leak */
  struct entry* e = xmalloc(sizeof *e);
  e->key = strdup("a key that is long enough to be told apart from the entry itself");
  e->next = table[number % 64];
  table[number % 64] = e;
}

static int compare(const void* one, const void* other) { /* the churn */
  char* copy = strdup(*(char* const*)one);
  int order = strcmp(copy, *(char* const*)other);
  free(copy);
  return order;
}

__attribute__((noinline)) long load_image(size_t bytes) { /* the peak */
  char* pixels = xmalloc(bytes);
  memset(pixels, 1, bytes);
  long sum = pixels[bytes / 2];
  free(pixels);
  return sum;
}

int main(void) {
  for (int i = 0; i < 5000; ++i) table_put(i);
  char* names[512];
  for (int i = 0; i < 512; ++i) {
    names[i] = xmalloc(8);
    memset(names[i], 0, 8);
    names[i][0] = (char)('a' + i * 7919 % 26);
  }
  qsort(names, 512, sizeof *names, compare);
  for (int i = 0; i < 512; ++i) free(names[i]);
  return load_image(20 << 20) == 2;
}
