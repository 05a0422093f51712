// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/plan.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {

TEST_CASE("the drawing of the header") {
  const Problem problem{{{0, 4}, 2, 1}, {{2, 7}, 4, 1}, {{4, 9}, 2, 1}};
  CHECK(load(problem) == 6);
  CHECK_FALSE(check(problem, {{0, 2, 0}, 6}));
  CHECK(best_arena(problem) == 6);
}

TEST_CASE("load adds what lives at one tick, and says when that is too much") {
  CHECK(load({}) == 0);
  CHECK(load({{{0, 5}, 3, 1}, {{5, 9}, 4, 1}}) == 4);  // half-open
  CHECK_THROWS_WITH_AS(load({{{0, 5}, ~Size{0}, 1}, {{3, 9}, 1, 1}}), doctest::Contains("tick 3"), Error);
}

TEST_CASE("the busiest tick is the first of several") {
  CHECK(busiest_tick({}) == 0);
  CHECK(busiest_tick({{{0, 5}, 3, 1}, {{3, 9}, 2, 1}, {{5, 9}, 3, 1}}) == 3);
}

TEST_CASE("an alignment for all goes with each buffer's own") {
  const Problem problem{{{0, 4}, 2, 1}, {{2, 7}, 4, 6}, {{4, 9}, 2, 8}};
  const Problem aligned = aligned_to(problem, 4);
  CHECK(aligned[0].alignment == 4);
  CHECK(aligned[1].alignment == 12);
  CHECK(aligned[2].alignment == 8);
  CHECK_THROWS_WITH_AS(aligned_to(problem, 0), doctest::Contains("it must be at least 1"), Error);
  CHECK_THROWS_WITH_AS(aligned_to(problem, (Size{1} << 55) + 1), doctest::Contains("beyond 2^56"), Error);
}

TEST_CASE("both checks find what is wrong") {
  const Problem problem{{{0, 4}, 2, 1}, {{2, 7}, 4, 2}, {{4, 9}, 2, 1}};
  for (const auto verify : {check, quick_check}) {
    CHECK_FALSE(verify(problem, {{0, 2, 0}, 6}));
    CHECK(verify(problem, {{0, 2}, 6})->what.find("2 offsets for 3 buffers") != std::string::npos);
    CHECK(verify(problem, {{0, 3, 0}, 9})->what == "offset is not a multiple of the alignment");
    CHECK(verify(problem, {{0, 2, 5}, 6})->what == "buffer ends outside the arena");
    CHECK(verify(problem, {{0, 2, kNoOffset}, 6})->what == "buffer ends outside the arena");
    const auto overlap = verify(problem, {{1, 2, 0}, 6});
    REQUIRE(overlap);
    CHECK(overlap->first == 0);
    CHECK(overlap->second == 1);
  }
}

TEST_CASE("the quick check agrees with the slow one on plans at random") {
  std::mt19937_64 random(11);
  int valid = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    const Problem problem = random_problem(random, 1 + random() % 6, 8, 4, {1, 2});
    Plan plan{{}, 16};
    for (size_t i = 0; i < problem.size(); ++i) plan.offsets.push_back(random() % 14);
    const bool good = !check(problem, plan);
    CHECK(good == !quick_check(problem, plan));
    valid += good;
  }
  CHECK(valid > rounds(100));
  CHECK(valid < 2900);
}

TEST_CASE("buffers of 0 bytes are planned around, and get the offset 0") {
  const Problem problem{{{0, 4}, 0, 8}, {{0, 4}, 4, 1}, {{1, 2}, 0, 1}, {{2, 7}, 4, 1}};
  CHECK_THROWS_AS(validate(problem), Error);
  CHECK_NOTHROW(validate(problem, Empty::kAllowed));
  REQUIRE(has_empty(problem));
  CHECK(sized(problem) == Problem{problem[1], problem[3]});
  const Plan plan = with_empty(problem, {{4, 0}, 8});
  CHECK(plan.offsets == std::vector<Offset>{0, 4, 0, 0});
  CHECK_FALSE(check(problem, plan));
  CHECK_FALSE(quick_check(problem, plan));
  CHECK(load(problem) == 8);
  CHECK_THROWS_AS(with_empty(problem, {{4}, 8}), Error);
  CHECK_THROWS_AS(with_empty(problem, {{4, 0, 0}, 8}), Error);
}

}  // namespace memoir
