/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs do to a heap by mistake, one kind a name: `misuse NAME`. A malloc that checks ends the
 * program by a signal, in most cases with a line on stderr; "missed" and status 0 when nothing was noticed.
 * Without a name: the kinds. Compiled without knowledge of malloc, so that nothing is optimised away.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void free_sized(void*, size_t) __attribute__((weak));
void _ZdlPvm(void*, size_t) __attribute__((weak)); /* operator delete(void*, size_t) */

enum { kCount = 4096, kSmall = 48, kMiddle = 100000, kLarge = 3 << 20 };
static void* blocks[kCount];

/* Blocks of a size, each of them used. */
static void fill(size_t size) {
  for (int i = 0; i < kCount; ++i) blocks[i] = memset(malloc(size), 0x5a, size);
}
/* As programs go on: whatever was freed is handed out again, and written to. */
static void go_on(size_t size) {
  for (int i = 0; i < kCount; ++i) memset(malloc(size), 0xa5, size);
}
static void* on_thread(void* (*work)(void*), void* argument) {
  pthread_t thread;
  void* result;
  if (pthread_create(&thread, NULL, work, argument) != 0) abort();
  pthread_join(thread, &result);
  return result;
}
static void* free_there(void* block) {
  free(block);
  return NULL;
}
static void free_on_thread(void* block) { on_thread(free_there, block); }
/* Every second one, the odd ones: no span is wholly free, all have blocks to hand out. */
static void free_half(void (*how)(void*)) {
  for (int i = 1; i < 1024; i += 2) how(blocks[i]);
}
static void* malloc_there(void* size) { return memset(malloc((size_t)size), 1, (size_t)size); }
/* Two blocks of the array, the second right behind the first. */
static void neighbours(size_t size, char** first, char** second) {
  fill(size);
  for (int i = 0; i < kCount; ++i) {
    for (int k = 0; k < kCount; ++k) {
      if ((char*)blocks[i] + malloc_usable_size(blocks[i]) == blocks[k] ||
          (char*)blocks[i] + malloc_usable_size(blocks[i]) + 8 == blocks[k]) { /* glibc's header */
        *first = blocks[i], *second = blocks[k];
        return;
      }
    }
  }
  puts("no neighbours");
  exit(3);
}

/* --- freed twice --- */
static void twice(void) {
  fill(kSmall);
  free(blocks[7]);
  free(blocks[7]);
  go_on(kSmall);
}
static void twice_with_others_between(void) {
  fill(kSmall);
  free(blocks[7]), free(blocks[8]), free(blocks[9]);
  free(blocks[7]);
  go_on(kSmall);
}
static void twice_much_later(void) {
  fill(kSmall);
  for (int i = 0; i < kCount; i += 2) free(blocks[i]);
  for (int i = 0; i < 64; ++i) blocks[i * 2 + 1] = malloc(4 * kSmall);
  free(blocks[kCount / 2]);
  go_on(kSmall);
}
static void twice_written_between(void) {
  fill(kSmall);
  free(blocks[7]);
  memset(blocks[7], 0x77, kSmall);
  free(blocks[7]);
  for (int i = 9; i < 1024; i += 2) free(blocks[i]);
  go_on(kSmall);
}
static void twice_on_two_threads(void) {
  fill(kSmall);
  on_thread(free_there, blocks[7]);
  free(blocks[7]);
  go_on(kSmall);
}
static void twice_of_another_thread(void) {
  void* theirs = on_thread(malloc_there, (void*)kSmall);
  free(theirs);
  free(theirs);
  go_on(kSmall);
}
static void twice_when_all_is_free(void) {
  fill(kSmall);
  for (int i = 0; i < kCount; ++i) free(blocks[i]);
  free(blocks[kCount / 2]);
  go_on(kSmall);
}
static void twice_after_trim(void) {
  fill(kSmall);
  for (int i = 0; i < kCount; ++i) {
    if (i % 1024) free(blocks[i]);
  }
  malloc_trim(0);
  free(blocks[kCount / 2 + 1]);
  go_on(kSmall);
}
static void twice_middle(void) {
  char* block = malloc(kMiddle);
  memset(block, 1, kMiddle);
  free(block);
  free(block);
}
static void twice_large(void) {
  char* block = malloc(kLarge);
  memset(block, 1, kLarge);
  free(block);
  free(block);
}
static void realloc_of_freed(void) {
  fill(kSmall);
  free(blocks[7]);
  blocks[7] = realloc(blocks[7], kSmall - 8);
  go_on(kSmall);
}

/* --- freed what is not a block --- */
static void inside_small(void) {
  fill(kSmall);
  free((char*)blocks[7] + 16);
  go_on(kSmall);
}
static void inside_small_by_eight(void) {
  fill(kSmall);
  free((char*)blocks[7] + 8);
  go_on(kSmall);
}
static void inside_small_by_one(void) {
  fill(kSmall);
  free((char*)blocks[7] + 1);
  go_on(kSmall);
}
static void inside_kilobytes(void) {
  fill(5000);
  free((char*)blocks[7] + 4096);
  go_on(5000);
}
static void inside_middle(void) {
  char* block = malloc(kMiddle);
  free(block + 8192);
}
static void inside_large(void) {
  char* block = malloc(kLarge);
  free(block + 4096);
}
static void realloc_inside(void) {
  fill(kSmall);
  blocks[7] = realloc((char*)blocks[7] + 16, 20);
  go_on(kSmall);
}
static void on_the_stack(void) {
  char data[64] __attribute__((aligned(16)));
  free(data + 16);
}
static void in_static_memory(void) {
  static char data[64] __attribute__((aligned(16)));
  free(data + 16);
}
static void in_a_mapping(void) {
  fill(kSmall);
  free((char*)mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096);
}
static void far_beyond(void) {
  fill(kSmall);
  free((char*)blocks[7] + ((size_t)1 << 30));
}
static void never_handed_out(void) {
  char* block = malloc(7000); /* of a size that nobody else asks for */
  free(block + malloc_usable_size(block) * 3);
  go_on(7000);
}
static void smaller_than_its_free_says(void) {
  fill(kSmall);
  if (free_sized) free_sized(blocks[7], 4 * kSmall);
  else if (_ZdlPvm) _ZdlPvm(blocks[7], 4 * kSmall);
  else puts("no sized free"), exit(3);
  go_on(kSmall);
}

/* --- written where it must not --- */
static void after_free_first_word(void) {
  fill(kSmall);
  free_half(free);
  *(void**)blocks[7] = blocks[2000];
  go_on(kSmall);
}
static void after_free_second_word(void) {
  fill(kSmall);
  free_half(free);
  ((void**)blocks[7])[1] = blocks[2000];
  go_on(kSmall);
}
static void after_free_one_bit(void) {
  fill(kSmall);
  free_half(free);
  *(uint64_t*)blocks[7] ^= 16;
  go_on(kSmall);
}
static void after_free_link_to_elsewhere(void) {
  static char target[256] __attribute__((aligned(16)));
  fill(kSmall);
  free_half(free);
  for (int i = 1; i < 1024; i += 2) *(void**)blocks[i] = target + 16;
  go_on(kSmall);
}
static void after_free_by_another_thread(void) {
  fill(kSmall);
  free_half(free_on_thread);
  memset(blocks[7], 0x77, 16);
  go_on(kSmall);
}
static void after_free_large(void) {
  char* block = malloc(kLarge);
  memset(block, 1, kLarge);
  free(block);
  block[kLarge / 2] = 2;
}
static void past_the_end_into_a_free_block(void) {
  char *first, *second;
  neighbours(kSmall, &first, &second);
  for (int i = 1; i < kCount; i += 2) {
    if (blocks[i] != first && blocks[i] != second) free(blocks[i]);
  }
  free(second);
  memset(first, 0x41, malloc_usable_size(first) + 16);
  go_on(kSmall);
}
static void one_bit_past_the_end(void) {
  char *first, *second;
  neighbours(kSmall, &first, &second);
  for (int i = 1; i < kCount; i += 2) {
    if (blocks[i] != first && blocks[i] != second) free(blocks[i]);
  }
  free(second);
  first[malloc_usable_size(first)] ^= 0x80;
  go_on(kSmall);
}
static void past_the_end_of_large(void) {
  char* block = malloc(kLarge);
  block[malloc_usable_size(block) + 64] = 1;
  free(block);
}
static void before_the_start_of_large(void) {
  char* block = malloc(kLarge);
  block[-64] = 1;
  free(block);
}
/* Nothing of the heap is touched here, so that only checks of every access see it. */
static void past_the_end_into_a_used_block(void) {
  char *first, *second;
  neighbours(kSmall, &first, &second);
  memset(first, 0x41, malloc_usable_size(first) + 16);
  free(second), free(first);
  go_on(kSmall);
}
static void after_free_third_word(void) {
  fill(kSmall);
  free_half(free);
  ((void**)blocks[7])[2] = blocks[2000];
  go_on(kSmall);
}
static void read_after_free(void) {
  fill(kSmall);
  free(blocks[7]);
  volatile char seen = ((char*)blocks[7])[20];
  (void)seen;
  go_on(kSmall);
}

static const struct {
  const char* name;
  void (*run)(void);
} kinds[] = {
#define KIND(name) \
  { #name, name }
    KIND(twice),
    KIND(twice_with_others_between),
    KIND(twice_much_later),
    KIND(twice_written_between),
    KIND(twice_on_two_threads),
    KIND(twice_of_another_thread),
    KIND(twice_when_all_is_free),
    KIND(twice_after_trim),
    KIND(twice_middle),
    KIND(twice_large),
    KIND(realloc_of_freed),
    KIND(inside_small),
    KIND(inside_small_by_eight),
    KIND(inside_small_by_one),
    KIND(inside_kilobytes),
    KIND(inside_middle),
    KIND(inside_large),
    KIND(realloc_inside),
    KIND(on_the_stack),
    KIND(in_static_memory),
    KIND(in_a_mapping),
    KIND(far_beyond),
    KIND(never_handed_out),
    KIND(smaller_than_its_free_says),
    KIND(after_free_first_word),
    KIND(after_free_second_word),
    KIND(after_free_one_bit),
    KIND(after_free_link_to_elsewhere),
    KIND(after_free_by_another_thread),
    KIND(after_free_large),
    KIND(past_the_end_into_a_free_block),
    KIND(one_bit_past_the_end),
    KIND(past_the_end_of_large),
    KIND(before_the_start_of_large),
    KIND(past_the_end_into_a_used_block),
    KIND(after_free_third_word),
    KIND(read_after_free),
};

int main(int count, char** words) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (count == 2 && strcmp(kinds[i].name, words[1]) == 0) {
      kinds[i].run();
      puts("missed");
      return 0;
    }
    if (count == 1) puts(kinds[i].name);
  }
  return count == 1 ? 0 : 2;
}
