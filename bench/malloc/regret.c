/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs for which two lifetime classes are worth nothing: `regret KIND SEED MIB SECONDS`.
 *
 *   shuffled   each call makes objects that live long and objects that do not, at random
 *   flips      what a call makes lives long for a while, then not, then long again
 *   grows      a table that is only added to, with short-lived work beside it
 *
 * Prints bytes live, and resident at the peak and SECONDS after nine tenths of the load has gone (`grows`
 * keeps its load).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSites = 64 };
struct Object {
  struct Object* next;
  size_t size;
};
static uint64_t state;
static struct Object *lasting, *passing[4096];
static size_t live, peak_resident;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state * 2685821657736338717ull >> 16;
}

static size_t resident(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) exit(2);
  fclose(file);
  return (size_t)pages * 4096;
}

/* A call of its own for each site: the stack's height tells them apart, as depths of a program's calls do. */
__attribute__((noinline)) static struct Object* make(int site, size_t size) {
  volatile char room[64];
  if (site > 0) {
    room[0] = 0;
    struct Object* const made = make(site - 1, size);
    room[1] = 0;
    return made;
  }
  struct Object* const object = malloc(size);
  if (object == NULL) exit(2);
  memset(object, 1, size);
  object->size = size;
  live += size;
  return object;
}

static void drop(struct Object* object) {
  live -= object->size;
  free(object);
}

static void look(void) {
  const size_t now = resident();
  if (now > peak_resident) peak_resident = now;
}

int main(int words, char** word) {
  if (words != 5) return 2;
  const int flips = strcmp(word[1], "flips") == 0, grows = strcmp(word[1], "grows") == 0;
  state = strtoull(word[2], NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
  const size_t load = strtoull(word[3], NULL, 10) << 20;
  for (int wave = 0; wave < 3; ++wave) {
    size_t allocated = 0;
    for (size_t i = 0; live < load || allocated < 3 * load; ++i) {
      const int site = (int)(next() % kSites);
      const size_t size = sizeof(struct Object) + next() % (next() % 8 == 0 ? 4000 : 200);
      struct Object* const object = make(site / 8, size);
      allocated += size;
      /* As much lives long in each kind: what differs is whether the site says so, and for how long. */
      const int period = (int)(allocated / (load / 4));
      const int lasts = flips ? (site / 8 + period) % 4 == 0 : next() % 4 == 0;
      if (lasts && live < load) {
        object->next = lasting;
        lasting = object;
      } else {
        struct Object** const place = &passing[next() % 4096];
        if (*place != NULL) drop(*place);
        *place = object;
      }
      if (i % 65536 == 0) look();
    }
    look();
    if (grows) continue;
    for (struct Object** place = &lasting; *place != NULL;) {
      struct Object* const object = *place;
      if (next() % 10 == 0) {
        place = &object->next;
      } else {
        *place = object->next;
        drop(object);
      }
    }
  }
  sleep((unsigned)atoi(word[4]));
  printf("{\"live\": %zu, \"peak\": %zu, \"settled\": %zu}\n", live, peak_resident, resident());
  return 0;
}
