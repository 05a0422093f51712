// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/planners.h"

#include <string>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/aligned_load.h"
#include "memoir/plan/gap_index.h"
#include "problems.h"

namespace memoir {
namespace {

Plan run(std::string_view name, const Problem& problem) {
  const Plan plan = find_planner(name).run(problem);
  const auto violation = check(problem, plan);
  const std::string what = violation ? violation->what : "";
  INFO(std::string(name) << ": " << what);
  CHECK_FALSE(violation);
  Size top = 0;
  for (size_t i = 0; i < problem.size(); ++i) top = std::max(top, plan.offsets[i] + problem[i].size);
  CHECK(plan.arena_size == top);
  return plan;
}

}  // namespace

TEST_CASE("every planner gives a valid plan, never below the best there is") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 150; ++round) {
    const Problem problem = random_problem(random, 1 + random() % 6, 2 + random() % 10, 9, {1, 2, 4, 3});
    const Size best = best_arena(problem);
    CHECK(load(problem) <= aligned_load(problem));
    CHECK(aligned_load(problem) <= best);
    for (const Planner& planner : planners()) CHECK(run(planner.name, problem).arena_size >= best);
    const Plan quick = plan_quickly(problem);
    CHECK_FALSE(check(problem, quick));
    CHECK(quick.arena_size >= best);
  }
}

TEST_CASE("random problems of many shapes, alignments that are no powers of two among them") {
  std::mt19937_64 random(8);
  for (int round = 0; round < 60; ++round) {
    const Tick ticks = 2 + random() % 400;
    const Problem problem =
        random_problem(random, 1 + random() % 300, ticks, Size{1} << (random() % 40),
                       round % 2 ? std::vector<Size>{1, 64, 4096} : std::vector<Size>{1, 24, 7, 512});
    const Size floor = aligned_load(problem);
    for (const Planner& planner : planners()) CHECK(run(planner.name, problem).arena_size >= floor);
  }
}

TEST_CASE("an empty problem has the plan of 0 bytes") {
  for (const Planner& planner : planners()) CHECK(planner.run({}) == Plan{});
  CHECK(plan_quickly({}) == Plan{});
  CHECK(aligned_load({}) == 0);
}

TEST_CASE("a planner gives the same plan every time") {
  std::mt19937_64 random(9);
  const Problem problem = random_problem(random, 200, 50, 16);  // many equal keys
  for (const Planner& planner : planners()) CHECK(planner.run(problem) == planner.run(problem));
}

TEST_CASE("the gap search sees the leading gap, the taller earlier neighbour, and its own alignment") {
  const auto at = [](const Problem& problem, const std::vector<Offset>& placed, Fit fit) {
    GapIndex index(problem);
    for (size_t i = 0; i < placed.size(); ++i) index.place(i, placed[i]);
    return index.find(placed.size(), fit);
  };
  // A gap below everything that is placed.
  CHECK(at({{{0, 4}, 4, 1}, {{0, 4}, 3, 1}}, {8}, Fit::kBest) == 0);
  // The first neighbour by offset is also the tallest: the end of the second is not the end of the two.
  CHECK(at({{{0, 4}, 10, 1}, {{4, 8}, 2, 1}, {{2, 6}, 3, 1}}, {0, 2}, Fit::kFirst) == 10);
  // The buffer's own alignment counts, not its neighbours'.
  CHECK(at({{{0, 4}, 5, 64}, {{0, 4}, 4, 4}}, {0}, Fit::kFirst) == 8);
  // A gap that is large enough only before it is aligned is not used.
  CHECK(at({{{0, 4}, 5, 1}, {{0, 4}, 9, 1}, {{0, 4}, 5, 8}}, {0, 10}, Fit::kBest) == 24);
  // Best is the smallest gap, first is the lowest.
  const Problem three{{{0, 4}, 1, 1}, {{0, 4}, 1, 1}, {{0, 4}, 2, 1}};
  CHECK(at(three, {9, 12}, Fit::kFirst) == 0);
  CHECK(at(three, {9, 12}, Fit::kBest) == 10);
  // Ends are exclusive: a buffer born when another dies does not meet it.
  CHECK(at({{{0, 4}, 8, 1}, {{4, 6}, 8, 1}}, {0}, Fit::kFirst) == 0);
}

TEST_CASE("the gap index answers as a scan over all placed buffers does") {
  std::mt19937_64 random(10);
  for (int round = 0; round < 40; ++round) {
    const Problem problem = random_problem(random, 120, 2 + random() % 90, 20, {1, 4, 6});
    GapIndex index(problem);
    std::vector<Offset> offsets;
    for (size_t i = 0; i < problem.size(); ++i) {
      const auto [lifetime, size, alignment] = problem[i];
      std::vector<Range> placed;
      for (size_t j = 0; j < i; ++j) {
        if (lifetime.overlaps(problem[j].lifetime)) placed.push_back({offsets[j], problem[j].size});
      }
      std::sort(placed.begin(), placed.end(), [](Range a, Range b) { return a.begin < b.begin; });
      Offset top = 0, first = kNoOffset, best = kNoOffset;
      Size smallest = ~Size{0};
      for (const Range& range : placed) {
        const Offset offset = align_to(top, alignment);
        if (offset + size <= range.begin) {
          if (first == kNoOffset) first = offset;
          if (range.begin - top < smallest) smallest = range.begin - top, best = offset;
        }
        top = std::max(top, range.end());
      }
      const Offset above = align_to(top, alignment);
      CHECK(index.find(i, Fit::kFirst) == (first == kNoOffset ? above : first));
      CHECK(index.find(i, Fit::kBest) == (best == kNoOffset ? above : best));
      offsets.push_back(random() % 2 ? index.find(i, Fit::kFirst) : index.find(i, Fit::kBest));
      index.place(i, offsets.back());
    }
  }
}

TEST_CASE("identical buffers are not one buffer") {
  const Problem problem(5, {{2, 9}, 7, 2});  // keyed by lifetime and size, they would be
  for (const Planner& planner : planners()) CHECK(run(planner.name, problem).arena_size == 39);
}

TEST_CASE("the floor knows of alignment") {
  CHECK(aligned_load({{{0, 4}, 1, 64}, {{0, 4}, 1, 64}}) == 65);
  // At tick 2 the one of 1 byte on top makes 65; at tick 4 the one of 9 on top makes 73.
  CHECK(aligned_load({{{0, 4}, 1, 64}, {{2, 6}, 60, 64}, {{4, 8}, 9, 128}}) == 73);
  CHECK(aligned_load({{{0, 4}, 5, 64}, {{0, 4}, 5, 1}}) == 10);  // nothing in common
}

TEST_CASE("the best arena can be above the load") {
  const Problem problem{{{4, 6}, 2, 1}, {{1, 2}, 4, 1},  {{6, 10}, 5, 1}, {{5, 7}, 2, 1},
                        {{2, 7}, 2, 1}, {{7, 10}, 5, 1}, {{3, 4}, 2, 1},  {{0, 5}, 5, 1}};
  CHECK(load(problem) == 10);
  CHECK(best_arena(problem) == 11);
}

TEST_CASE("an unknown planner is named, with those there are") {
  CHECK_THROWS_WITH_AS(find_planner("greedy"), doctest::Contains("there are bump, greedy_by_size"), Error);
}

TEST_CASE("problems that are none") {
  for (const Planner& planner : planners()) {
    CHECK_THROWS_AS(planner.run({{{4, 4}, 1, 1}}), Error);
    CHECK_THROWS_AS(planner.run({{{5, 4}, 1, 1}}), Error);
    CHECK_THROWS_AS(planner.run({{{0, 4}, 0, 1}}), Error);
    CHECK_THROWS_AS(planner.run({{{0, 4}, 1, 0}}), Error);
    CHECK_THROWS_WITH_AS(planner.run({{{0, 1}, Size{1} << 62, 1}, {{1, 2}, Size{1} << 62, 1}}),
                         doctest::Contains("buffer 1 of 4611686018427387904 bytes"), Error);
    CHECK_THROWS_AS(planner.run({{{0, 1}, ~Size{0}, 1}, {{1, 2}, 5, 1}}), Error);
    CHECK_THROWS_AS(planner.run({{{0, 1}, 1, ~Size{0}}}), Error);
  }
}

}  // namespace memoir
