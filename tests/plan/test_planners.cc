// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/planners.h"

#include <string>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/simple/aligned_load.h"
#include "problems.h"
#include "support/rounds.h"

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

std::vector<std::uint32_t> in_turn(const Problem& problem) {
  std::vector<std::uint32_t> order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

}  // namespace

TEST_CASE("every planner gives a valid plan, never below the best there is") {
  std::mt19937_64 random(7);
  for (int round = 0; round < rounds(150); ++round) {
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

TEST_CASE("random problems of many shapes, alignments that are not powers of two among them") {
  std::mt19937_64 random(8);
  for (int round = 0; round < rounds(40); ++round) {
    const Tick ticks = 2 + random() % 400;
    const Problem problem =
        random_problem(random, 1 + random() % 100, ticks, Size{1} << (random() % 40),
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
  for (int round = 0; round < rounds(40); ++round) {
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

TEST_CASE("lists of runs, small and large, are what a list of all runs would be") {
  std::mt19937_64 random(12);
  for (const Offset space : {300u, 5'000u, 200'000u}) {
    RunLists lists;
    std::vector<RunLists::List> handles(3);
    std::vector<std::vector<bool>> taken(handles.size(), std::vector<bool>(space + 100));
    for (int round = 0; round < 4'000; ++round) {
      const size_t which = random() % handles.size();
      const Offset begin = random() % space, end = begin + 1 + random() % (random() % 20 == 0 ? 100 : 8);
      lists.insert(handles[which], {begin, end});
      for (Offset at = begin; at < end; ++at) taken[which][at] = true;
      if (round % 500 != 499) continue;
      for (size_t l = 0; l < handles.size(); ++l) {
        const Size size = 1 + random() % 6;
        // Every gap of at least `size`, found by passing from one to the next.
        RunLists::Cursor cursor = lists.read(handles[l]);
        std::vector<Range> found, expected;
        Offset position = 0;
        while (!cursor.done()) {
          if (position < (*cursor).begin && (*cursor).begin - position >= size) {
            found.push_back({position, (*cursor).begin - position});
          }
          position = cursor.pass(size);
        }
        Offset free = 0;
        for (Offset at = 0; at < taken[l].size(); ++at) {
          if (!taken[l][at]) continue;
          if (at - free >= size) expected.push_back({free, at - free});
          free = at + 1;
        }
        CHECK(found == expected);
        CHECK(position == free);
        // The first run that ends after a position.
        cursor = lists.read(handles[l]);
        for (Offset at = random() % 50; at < space; at += random() % 999) {
          cursor.seek(at);
          Offset next = at;
          while (next < taken[l].size() && !taken[l][next]) ++next;
          CHECK(cursor.done() == (next == taken[l].size()));
          if (!cursor.done()) CHECK(std::max((*cursor).begin, at) == next);
        }
      }
    }
  }
}

TEST_CASE("on many columns the gap index still answers as a scan does") {
  std::mt19937_64 random(13);
  Problem problem;
  for (int i = 0; i < 12'000; ++i) {
    const Tick begin = random() % 20'000, length = 1 + random() % (random() % 8 == 0 ? 15'000 : 40);
    problem.push_back({{begin, begin + length}, 1 + random() % 50, 1});
  }
  const Plan first = place_in_order(problem, in_turn(problem), Fit::kFirst);
  CHECK(first.offsets == fit_in_order(problem, find_sections(problem), in_turn(problem)));
  CHECK_FALSE(quick_check(problem, place_in_order(problem, in_turn(problem), Fit::kBest)));
}

TEST_CASE("first fit in the order of start, length, area and conflicts") {
  //             a: alone at first   b: long     c: large and short   d: meets all
  const Problem problem{{{0, 2}, 3, 1}, {{1, 9}, 1, 1}, {{2, 4}, 7, 1}, {{1, 5}, 2, 1}, {{8, 9}, 9, 1}};
  CHECK(run("first_fit_by_start", problem).offsets == std::vector<Offset>{0, 5, 6, 3, 6});
  CHECK(run("first_fit_by_length", problem).offsets == std::vector<Offset>{3, 0, 3, 1, 1});
  CHECK(run("first_fit_by_area", problem).offsets == std::vector<Offset>{0, 9, 0, 7, 0});
  CHECK(run("greedy_by_conflicts", problem).offsets == std::vector<Offset>{3, 0, 3, 1, 1});
}

TEST_CASE("hill climbing improves on the order it begins with, and stops at the floor") {
  const Problem hard = challenge("minimalloc/A.1048576.csv");
  const Sections sections = find_sections(hard);
  const Size begun = arena_size(hard, fit_in_order(hard, sections, make_order(hard, sections, "ZW")));
  CHECK(run("hill_climb", hard).arena_size < begun);
  CHECK(run("hill_climb", {{{0, 4}, 5, 1}, {{2, 6}, 5, 1}}).arena_size == 10);
}

TEST_CASE("boxing: sizes over six orders of magnitude, and boxes of one buffer") {
  std::mt19937_64 random(14);
  Problem problem;
  for (int i = 0; i < 3'000; ++i) {
    const Tick begin = random() % 1'000;
    problem.push_back({{begin, begin + 1 + random() % 300}, Size{1} << (random() % 21), 1});
  }
  // Twice the load is what the method promises for ratios that no one will ever see.
  CHECK(static_cast<double>(run("boxing", problem).arena_size) < 2.0 * static_cast<double>(load(problem)));
  CHECK(run("boxing", {{{3, 4}, 1'000'000, 1}, {{3, 4}, 1, 1}}).arena_size == 1'000'001);
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
  for (const Planner& planner : planners()) {
    const std::string name(planner.name);
    CHECK_THROWS_WITH_AS(find_planner("greedy"), doctest::Contains(name.c_str()), Error);
  }
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
