// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/skeleton.h"

#include <numeric>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/simple/planners.h"
#include "plan/problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

using Sequence = std::vector<PlannedAllocation>;

Sequence sequence_of(const Problem& problem, const Plan& plan) {
  Sequence sequence;
  for (size_t i = 0; i < problem.size(); ++i) {
    sequence.push_back({.size = problem[i].size,
                        .alignment = problem[i].alignment,
                        .lifetime = problem[i].lifetime,
                        .offset = plan.offsets[i]});
  }
  return sequence;
}

std::vector<Offset> placed(const Skeleton& skeleton, const Problem& problem) {
  std::vector<Size> sizes, alignments;
  for (const Buffer& buffer : problem) {
    sizes.push_back(buffer.size);
    alignments.push_back(buffer.alignment);
  }
  return place_on(skeleton, sizes, alignments);
}

Size top(const Problem& problem, const std::vector<Offset>& offsets) {
  Size most = 0;
  for (size_t i = 0; i < problem.size(); ++i) most = std::max(most, offsets[i] + problem[i].size);
  return most;
}

/// From the definition: at some tick both live, and nothing that lives lies between.
bool is_directly_above(const Problem& problem, const Plan& plan, size_t upper, size_t lower) {
  if (plan.offsets[lower] >= plan.offsets[upper]) return false;
  const Tick begin = std::max(problem[lower].lifetime.begin, problem[upper].lifetime.begin);
  const Tick end = std::min(problem[lower].lifetime.end, problem[upper].lifetime.end);
  for (Tick tick = begin; tick < end; ++tick) {
    bool between = false;
    for (size_t i = 0; i < problem.size(); ++i) {
      between |= problem[i].lifetime.begin <= tick && tick < problem[i].lifetime.end &&
                 plan.offsets[i] > plan.offsets[lower] && plan.offsets[i] < plan.offsets[upper];
    }
    if (!between) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the drawing of skeleton.h") {
  const Problem problem{{{0, 8}, 10, 1}, {{1, 4}, 4, 1}, {{5, 7}, 3, 1}};
  const Skeleton skeleton = find_skeleton(sequence_of(problem, {{0, 12, 10}, 16}));
  CHECK(skeleton == Skeleton{{0, 2, 1}, {0, 0, 1, 2}, {0, 0}});
  CHECK(placed(skeleton, problem) == std::vector<Offset>{0, 10, 10});  // b is pushed down
  CHECK(place_on(skeleton, std::vector<Size>{33, 1, 0}, std::vector<Size>{1, 8, 1}) ==
        std::vector<Offset>{0, 40, 33});
}

TEST_CASE("who is directly above whom, by the definition") {
  std::mt19937_64 random(1);
  for (int round = 0; round < rounds(300); ++round) {
    const Problem problem = random_problem(random, 1 + random() % 12, 2 + random() % 14, 9, {1, 2, 4});
    const Plan plan = find_planner("best_fit").run(problem);
    const Skeleton skeleton = find_skeleton(sequence_of(problem, plan));
    for (std::uint32_t upper = 0; upper < problem.size(); ++upper) {
      const auto below = skeleton.below_of(upper);
      REQUIRE(std::is_sorted(below.begin(), below.end()));
      for (std::uint32_t lower = 0; lower < problem.size(); ++lower) {
        REQUIRE(std::binary_search(below.begin(), below.end(), lower) ==
                is_directly_above(problem, plan, upper, lower));
      }
    }
    REQUIRE(skeleton.below.size() <= 3 * problem.size());
  }
}

TEST_CASE("valid for any sizes") {
  std::mt19937_64 random(2);
  for (int round = 0; round < rounds(1000); ++round) {
    Problem problem =
        random_problem(random, 1 + random() % 40, 2 + random() % 30, 1 + random() % 50, {1, 2, 8, 12});
    const Plan plan = plan_quickly(problem);
    const Skeleton skeleton = find_skeleton(sequence_of(problem, plan));
    for (int other = 0; other < 5; ++other) {
      for (Buffer& buffer : problem) {
        buffer.size = 1 + random() % (Size{1} << random() % 20);
        buffer.alignment = Size{1} << random() % 6;
      }
      const std::vector<Offset> offsets = placed(skeleton, problem);
      REQUIRE_FALSE(check(problem, {offsets, top(problem, offsets)}));
    }
  }
}

TEST_CASE("at the sizes of the plan no higher, and the same once it is pushed down") {
  std::mt19937_64 random(3);
  for (int round = 0; round < rounds(500); ++round) {
    const Problem problem = random_problem(random, 1 + random() % 40, 2 + random() % 30, 50, {1, 4, 16});
    Plan plan = plan_quickly(problem);
    Skeleton skeleton = find_skeleton(sequence_of(problem, plan));
    const std::vector<Offset> down = placed(skeleton, problem);
    for (size_t i = 0; i < problem.size(); ++i) REQUIRE(down[i] <= plan.offsets[i]);
    plan.offsets = down;
    skeleton = find_skeleton(sequence_of(problem, plan));
    REQUIRE(placed(skeleton, problem) == down);
  }
}

TEST_CASE("what is not planned lies nowhere, and memories do not know each other") {
  Sequence sequence(4);
  for (size_t i = 0; i < 4; ++i) sequence[i] = {.size = 8, .lifetime = {i, 9}, .offset = 8 * i};
  sequence[1].offset = kNoOffset;
  sequence[2].memory = 1;
  const Skeleton skeleton = find_skeleton(sequence);
  CHECK(skeleton == Skeleton{{0, 2, 3}, {0, 0, 0, 0, 1}, {0}});
  CHECK(place_on(skeleton, std::vector<Size>(4, 5), std::vector<Size>(4, 1)) ==
        std::vector<Offset>{0, kNoOffset, 0, 5});
}

TEST_CASE("sizes that a skeleton cannot take") {
  const Skeleton skeleton = find_skeleton(Sequence{{.size = 8, .lifetime = {0, 1}, .offset = 0}});
  const std::vector<Size> one{1};
  CHECK_THROWS_WITH_AS(place_on(skeleton, {}, one), doctest::Contains("1 buffers was given 0 sizes"), Error);
  CHECK_THROWS_WITH_AS(place_on(skeleton, one, std::vector<Size>{0}), doctest::Contains("alignment 0"),
                       Error);
  CHECK_THROWS_WITH_AS(place_on(skeleton, std::vector<Size>{Size{1} << 63}, one), doctest::Contains("2^63"),
                       Error);
  CHECK(place_on(find_skeleton({}), {}, {}).empty());
  CHECK(place_on(Skeleton{}, {}, {}).empty());
}

}  // namespace memoir
