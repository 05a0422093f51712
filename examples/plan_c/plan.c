/* SPDX-License-Identifier: Apache-2.0
 *
 * memoir's planner from C: a plan, one without allocating, and a skeleton for other sizes. Installed
 * (cmake --install B --component plan_c --prefix P):
 *
 *   cc plan.c $(PKG_CONFIG_PATH=P/lib/pkgconfig pkg-config --cflags --libs memoir-plan-c) -o plan && ./plan
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "memoir_plan.h"

#define BUFFERS 6

static void must(int code, const char* what) {
  if (code == MEMOIR_PLAN_OK) return;
  fprintf(stderr, "%s: %d: %s\n", what, code, memoir_plan_why());
  exit(1);
}

int main(void) {
  /* A network's layers, each input freed when its output is there. */
  const uint64_t lower[BUFFERS] = {0, 1, 2, 3, 4, 1}, upper[BUFFERS] = {2, 3, 4, 5, 6, 5};
  const uint64_t size[BUFFERS] = {400, 800, 100, 800, 50, 64}, alignment[BUFFERS] = {64, 64, 64, 64, 64, 64};
  uint64_t offsets[BUFFERS], arena = 0;

  memoir_plan_options options = memoir_plan_defaults();
  options.deadline_s = 0.5;
  memoir_plan_result result;
  must(memoir_plan(BUFFERS, lower, upper, size, alignment, &options, offsets, &result), "plan");
  for (int i = 0; i < BUFFERS; ++i)
    printf("layer %d: %4" PRIu64 " bytes at %4" PRIu64 "\n", i, size[i], offsets[i]);
  printf("arena %" PRIu64 ", no plan is below %" PRIu64 "\n", result.arena_size, result.lower_bound);
  must(memoir_plan_check(BUFFERS, lower, upper, size, alignment, offsets, result.arena_size), "check");

  memoir_planner* planner = memoir_planner_create(BUFFERS); /* from here on nothing is allocated */
  if (planner == NULL) return 1;
  must(memoir_planner_plan(planner, BUFFERS, lower, upper, size, alignment, offsets, &arena), "planner");
  printf("without allocating: arena %" PRIu64 "\n", arena);
  memoir_planner_destroy(planner);

  memoir_skeleton* skeleton = memoir_skeleton_create(BUFFERS, lower, upper, size, alignment, offsets);
  if (skeleton == NULL) return 1;
  uint64_t larger[BUFFERS];
  for (int batch = 2; batch <= 8; batch *= 2) {
    for (int i = 0; i < BUFFERS; ++i) larger[i] = size[i] * (uint64_t)batch;
    must(memoir_skeleton_place(skeleton, larger, offsets, &arena), "skeleton");
    must(memoir_plan_check(BUFFERS, lower, upper, larger, alignment, offsets, arena),
         "check of the skeleton's");
    printf("batch %d: arena %" PRIu64 "\n", batch, arena);
  }
  memoir_skeleton_destroy(skeleton);

  options.capacity = 1000;
  const int code = memoir_plan(BUFFERS, lower, upper, size, alignment, &options, offsets, NULL);
  printf("into 1000 bytes: %s\n", code == MEMOIR_PLAN_INFEASIBLE ? memoir_plan_why() : "?");
  return code == MEMOIR_PLAN_INFEASIBLE ? 0 : 1;
}
