// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/heap/planned/plan_cursor.h"

namespace memoir {

namespace {

constexpr Request kFar{64, 64, 1}, kNext{32, 64, 2}, kUnknown{16, 64, 3};

// A hundred allocations of one kind, then one of another, which is far from where a pass begins.
RecordedPlan far_at_the_end() {
  RecordedPlan plan;
  for (Offset i = 0; i < 100; ++i) {
    plan.sequence.push_back({.site = 2, .size = 32, .alignment = 64, .lifetime = {i, i + 1}, .offset = 0});
  }
  plan.sequence.push_back({.site = 1, .size = 64, .alignment = 64, .lifetime = {100, 101}, .offset = 0});
  plan.arena_size = 64;
  return plan;
}

}  // namespace

TEST_CASE("a far match is believed at the third request in a row that finds nothing near") {
  const RecordedPlan plan = far_at_the_end();
  const PlannedLayout layout(plan);
  REQUIRE(layout.ok());
  PlanCursor cursor(layout);
  REQUIRE(cursor.ok());
  cursor.begin_pass();
  CHECK(cursor.match(kFar) == PlanCursor::kNone);
  CHECK(cursor.match(kFar) == PlanCursor::kNone);
  CHECK(cursor.misses() == 2);
  CHECK(cursor.match(kFar) == 100);
  CHECK(cursor.misses() == 0);
}

TEST_CASE("a near match ends the row") {
  const RecordedPlan plan = far_at_the_end();
  const PlannedLayout layout(plan);
  REQUIRE(layout.ok());
  PlanCursor cursor(layout);
  REQUIRE(cursor.ok());
  cursor.begin_pass();
  for (std::uint32_t round = 0; round < 5; ++round) {
    CAPTURE(round);
    CHECK(cursor.match(kFar) == PlanCursor::kNone);
    CHECK(cursor.match(kFar) == PlanCursor::kNone);
    CHECK(cursor.match(kNext) == round);
    CHECK(cursor.misses() == 0);
  }
  CHECK(cursor.place() == 5);
  CHECK(cursor.match(kUnknown) == PlanCursor::kNone);
}

}  // namespace memoir
