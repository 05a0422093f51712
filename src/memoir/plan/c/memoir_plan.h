/* SPDX-License-Identifier: Apache-2.0
 *
 * memoir's planner for C, and for every language that can call C. It gives each buffer an offset in one
 * arena, so that no two buffers that live at the same time overlap.
 *
 *   uint64_t lower[] = {0, 2, 4}, upper[] = {4, 7, 9}, size[] = {2, 4, 2}, offsets[3];
 *   memoir_plan_result result;
 *   if (memoir_plan(3, lower, upper, size, NULL, NULL, offsets, &result) != MEMOIR_PLAN_OK)
 *     puts(memoir_plan_why());
 *   result.arena_size                       6
 *
 * All arrays belong to the caller, and no function keeps a pointer to one. No exception leaves a function.
 * No thread is started unless memoir_plan_options asks for it, with `threads` or `progress`. memoir_planner
 * and memoir_skeleton allocate when they are created, and never again. Any thread may call these functions.
 * Only one thread at a time may use a memoir_planner; any number may use a memoir_skeleton.
 */
#ifndef MEMOIR_PLAN_H
#define MEMOIR_PLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMOIR_PLAN_API __attribute__((visibility("default")))

/* What functions return: the exit codes of `memoir plan`, and more. */
enum {
  MEMOIR_PLAN_OK = 0,
  MEMOIR_PLAN_INFEASIBLE =
      1, /* proven that no plan fits the capacity; the offsets are those of the best plan */
  MEMOIR_PLAN_BAD_INPUT = 2, /* memoir_plan_why() says what is wrong; nothing is written */
  MEMOIR_PLAN_NOT_FOUND = 3, /* none that fits was found, but there may be one; the offsets are the best */
  MEMOIR_PLAN_NO_MEMORY = 4, /* this process has not enough memory for planning; nothing is written */
  MEMOIR_PLAN_FAILED = 70    /* an error of memoir's own; nothing is written */
};

#define MEMOIR_PLAN_NO_LIMIT UINT64_MAX

/* Called by memoir_plan() while it plans, on the thread that called that: with each better plan, and about
 * ten times a second. `arena_size` is that of the best plan so far, MEMOIR_PLAN_NO_LIMIT before there is one;
 * `seconds` are of wall clock, since memoir_plan() began. Not 0: stop, and return the best plan so far. It
 * must not throw or jump out. */
typedef int (*memoir_plan_progress)(void* context, uint64_t arena_size, double seconds);

/* Start from memoir_plan_defaults(). Later versions add fields in place of the reserved ones, so the size
 * stays the same. `struct_size` may be smaller: the fields that are missing have their defaults. */
typedef struct memoir_plan_options {
  size_t struct_size;
  double deadline_s;   /* seconds of wall clock; 1. 0: the cheap planners alone */
  uint64_t work_limit; /* placements tried, instead of the deadline: the same plan on any machine; 0: none */
  uint64_t seed;       /* of randomised restarts; 0 */
  uint64_t capacity;   /* bytes: stop at the first plan that fits; MEMOIR_PLAN_NO_LIMIT: the smallest arena */
  uint32_t threads;    /* 1: the caller's alone; 0: one per core */
  /* Without a capacity: stop at the first plan that is no more than this above the proven bound. The larger
   * of the two counts. */
  uint64_t tolerance_bytes;      /* 0 */
  double tolerance_share;        /* of the bound, 0.01 is 1 %; 0 */
  memoir_plan_progress progress; /* NULL: none. With one, the search runs on a thread of its own */
  void* context;                 /* what it is called with */
  uint64_t reserved[2];          /* 0 */
} memoir_plan_options;

/* Sizes in bytes. */
typedef struct memoir_plan_result {
  uint64_t arena_size;  /* every buffer ends at or below it */
  uint64_t load;        /* the most bytes live at one tick */
  uint64_t lower_bound; /* proven: no plan is smaller */
  int32_t optimal;      /* 1: arena_size == lower_bound */
  double seconds;       /* wall clock */
} memoir_plan_result;

MEMOIR_PLAN_API memoir_plan_options memoir_plan_defaults(void);
/* "1.2.3" */
MEMOIR_PLAN_API const char* memoir_plan_version(void);
/* The reason of this thread's last failure: one line, never NULL. */
MEMOIR_PLAN_API const char* memoir_plan_why(void);

/* Plans `count` buffers: buffer i lives in the ticks [lower[i], upper[i]), has size[i] bytes and an offset
 * that is a multiple of alignment[i]. `alignment` may be NULL (1 for all), so may `options` (the defaults)
 * and `result`. Writes `count` offsets. A buffer of 0 bytes gets the offset 0. */
MEMOIR_PLAN_API int memoir_plan(size_t count, const uint64_t* lower, const uint64_t* upper,
                                const uint64_t* size, const uint64_t* alignment,
                                const memoir_plan_options* options, uint64_t* offsets,
                                memoir_plan_result* result);

/* Whether these offsets are a plan within `arena_size` bytes: MEMOIR_PLAN_OK, or MEMOIR_PLAN_BAD_INPUT with
 * the reason in memoir_plan_why(). */
MEMOIR_PLAN_API int memoir_plan_check(size_t count, const uint64_t* lower, const uint64_t* upper,
                                      const uint64_t* size, const uint64_t* alignment,
                                      const uint64_t* offsets, uint64_t arena_size);

/* Plans without allocating: first fit in three orders (size, size times length, length), the best of the
 * three, in at most count * count / 2 steps each. */
typedef struct memoir_planner memoir_planner;
/* Memory for `most` buffers, 24 bytes each; NULL when there is none. */
MEMOIR_PLAN_API memoir_planner* memoir_planner_create(size_t most);
MEMOIR_PLAN_API void memoir_planner_destroy(memoir_planner* planner);
/* As memoir_plan(). `arena_size` may be NULL. */
MEMOIR_PLAN_API int memoir_planner_plan(memoir_planner* planner, size_t count, const uint64_t* lower,
                                        const uint64_t* upper, const uint64_t* size,
                                        const uint64_t* alignment, uint64_t* offsets, uint64_t* arena_size);

/* Which buffer lies on which in a plan. It gives valid offsets for any other sizes of the same buffers, in
 * linear time and without allocating. */
typedef struct memoir_skeleton memoir_skeleton;
/* From a plan of these buffers; NULL on failure, with the reason in memoir_plan_why(). Copies what it needs.
 * Every size must be 1 or more: where a size may be 0 later, give 1 here. */
MEMOIR_PLAN_API memoir_skeleton* memoir_skeleton_create(size_t count, const uint64_t* lower,
                                                        const uint64_t* upper, const uint64_t* size,
                                                        const uint64_t* alignment, const uint64_t* offsets);
MEMOIR_PLAN_API void memoir_skeleton_destroy(memoir_skeleton* skeleton);
MEMOIR_PLAN_API size_t memoir_skeleton_count(const memoir_skeleton* skeleton);
/* One size per buffer, 0 allowed; writes one offset per buffer. `arena_size` may be NULL. */
MEMOIR_PLAN_API int memoir_skeleton_place(const memoir_skeleton* skeleton, const uint64_t* size,
                                          uint64_t* offsets, uint64_t* arena_size);

#ifdef __cplusplus
}
#endif

#endif
