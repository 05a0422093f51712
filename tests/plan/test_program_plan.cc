// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/program_plan.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"

namespace memoir {
namespace {

/// The drawing of program_plan.h.
ProgramPlan two_pools() {
  return {.sequence = {{.size = 4096, .lifetime = {0, 4}, .offset = 0},
                       {.size = 4096, .lifetime = {1, 3}, .offset = 0, .memory = 1, .pool = 1},
                       {.size = 4000, .lifetime = {2, 5}, .offset = 4096, .stream = 3}},
          .memories = {{.name = "device 0", .alignment = 512, .size = 8192, .load = 8096},
                       {.name = "device 0, pool 1", .alignment = 512, .size = 4096, .load = 4096}},
          .planner = "pool",
          .meta = {{"model", "tiny"}}};
}

}  // namespace

TEST_CASE("a heap takes its part") {
  const ProgramPlan plan = two_pools();
  const RecordedPlan own = recorded_for(plan, 0, 0);
  REQUIRE(own.sequence.size() == 2);
  CHECK(own.sequence[0].alignment == 512);  // the memory's
  CHECK(own.sequence[1].offset == 4096);
  CHECK(own.sequence[1].stream == 3);
  CHECK(own.arena_size == 8192);
  CHECK(own.load == 8096);
  CHECK(own.planner == "pool");
  CHECK(own.meta == plan.meta);
  CHECK(recorded_for(plan, 0, 1).arena_size == 4096);
  CHECK(recorded_for(plan, 1, 0).sequence.empty());
  CHECK(recorded_for(plan, 1, 0).arena_size == 0);
  CHECK(heaps_of(plan) == std::vector<std::pair<std::uint16_t, std::uint32_t>>{{0, 0}, {0, 1}});
  CHECK(loads_of(plan.sequence, 2) == std::vector<Size>{8096, 4096});
}

TEST_CASE("a heap follows a plan in one memory, which is its own") {
  ProgramPlan plan = two_pools();
  plan.sequence[1].pool = 0;
  CHECK_THROWS_WITH_AS(
      recorded_for(plan),
      "pool 0 on device 0 is planned in the memories device 0 and device 0, pool 1; a heap follows "
      "a plan in one",
      Error);
  plan.sequence[1] = {.size = 4, .lifetime = {1, 3}, .offset = 8096, .device = 2};
  CHECK_THROWS_WITH_AS(
      recorded_for(plan),
      "pool 0 on device 0 shares the memory device 0 with pool 0 on device 2; a heap follows a plan "
      "in a memory of its own",
      Error);
}

TEST_CASE("the plan of a pass is that of a program with one memory") {
  const RecordedPlan pass{{{7, 64, 64, {0, 2}, 0}, {7, 8, 64, {1, 5}, kNoOffset}, {7, 32, 64, {3, 4}, 0}},
                          64,
                          64,
                          "auto",
                          {{"model", "tiny"}}};
  CHECK(program_of(pass).memories == std::vector<PlannedMemory>{{.size = 64, .load = 64}});
  CHECK(recorded_for(program_of(pass)) == pass);
}

}  // namespace memoir
