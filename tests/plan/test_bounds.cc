// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/index/grid.h"
#include "memoir/plan/search/exact/bounds.h"
#include "memoir/plan/search/exact/decompose.h"
#include "memoir/plan/simple/aligned_load.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {

TEST_CASE("bounds never exceed the optimum, and equal the aligned load") {
  const std::vector<std::vector<Size>> alignments{{1}, {4}, {2, 4, 6}, {3, 6}, {4, 8, 64}};
  std::mt19937_64 random(31);
  for (int round = 0; round < rounds(1500); ++round) {
    const Problem problem =
        random_problem(random, 1 + random() % 6, 1 + random() % 8, 20, alignments[round % 5]);
    const Bound bound = lower_bound(problem);
    const Size best = best_arena(problem);
    CAPTURE(round);
    CHECK(bound.bytes <= best);
    CHECK(bound.bytes >= load(problem));
    CHECK(bound.bytes == aligned_load(problem));
    // The grid: the optimum is on it, so what it skips is nothing.
    CHECK(next_reachable(problem, find_grid(problem), best) == best);
  }
}

TEST_CASE("a bound names its tick and its argument") {
  const Problem problem{{{0, 4}, 2, 1}, {{2, 7}, 4, 1}, {{4, 9}, 2, 1}};
  CHECK(lower_bound(problem).bytes == 6);
  CHECK(lower_bound(problem).reason == "the load at tick 2");
  const Problem aligned{{{0, 4}, 2, 4}, {{2, 7}, 3, 4}};
  CHECK(lower_bound(aligned).bytes == 6);  // 3, rounded up to 4, below 2
  CHECK(lower_bound(aligned).reason.find("rounded up to 4") != std::string::npos);
  CHECK(lower_bound(Problem{}).bytes == 0);
  // Two of three at multiples of 64: 64 below 2, whatever the third one is.
  const Problem mixed{{{0, 4}, 2, 64}, {{1, 5}, 3, 4}, {{2, 7}, 9, 64}};
  CHECK(lower_bound(mixed).bytes == 66);
  CHECK(lower_bound(mixed).reason ==
        "the buffers at multiples of 64 bytes that are live at tick 2, all but the "
        "topmost rounded up to that");
}

TEST_CASE("sections are the maximal live sets") {
  const Problem problem{{{0, 4}, 10, 1}, {{1, 2}, 20, 1}, {{2, 5}, 30, 1}};
  const Sections sections = find_sections(problem);
  CHECK(sections.count == 2);
  CHECK(sections.first == std::vector<std::uint32_t>{0, 0, 1});
  CHECK(sections.last == std::vector<std::uint32_t>{2, 1, 2});
  CHECK(sections.load == std::vector<Size>{30, 40});
  std::mt19937_64 random(32);
  for (int round = 0; round < rounds(500); ++round) {
    const Problem drawn = random_problem(random, 1 + random() % 12, 1 + random() % 15, 9);
    const Sections found = find_sections(drawn);
    CHECK(found.max_load() == load(drawn));
    for (size_t i = 0; i < drawn.size(); ++i) {
      for (size_t j = 0; j < drawn.size(); ++j) {
        const bool share = found.first[i] < found.last[j] && found.first[j] < found.last[i];
        CHECK(share == drawn[i].lifetime.overlaps(drawn[j].lifetime));
      }
    }
  }
}

TEST_CASE("decomposition loses nothing: the optimum is that of its worst part") {
  std::mt19937_64 random(33);
  int several = 0, bars = 0;
  for (int round = 0; round < rounds(1500); ++round) {
    const Problem problem = random_problem(random, 1 + random() % 6, 1 + random() % 9, 9,
                                           round % 2 ? std::vector<Size>{1} : std::vector<Size>{1, 2});
    const Decomposition parts = decompose(problem);
    Size worst = 0;
    size_t buffers = parts.placed.size();
    for (const auto& [buffer, offset] : parts.placed) worst = std::max(worst, offset + problem[buffer].size);
    for (const Part& part : parts.parts) {
      worst = std::max(worst, part.base + best_arena(extract(problem, part.buffers)));
      buffers += part.buffers.size();
    }
    CHECK(buffers == problem.size());
    CHECK(worst == best_arena(problem));
    several += parts.parts.size() > 1;
    bars += !parts.placed.empty();
  }
  CHECK(several > rounds(50));
  CHECK(bars > rounds(50));
}

TEST_CASE("the fit index finds the lowest and the tightest gap") {
  std::mt19937_64 random(34);
  for (int round = 0; round < rounds(300); ++round) {
    const Problem problem = random_problem(random, 2 + random() % 40, 1 + random() % 60, 30,
                                           round % 2 ? std::vector<Size>{1} : std::vector<Size>{1, 4, 6});
    const Sections sections = find_sections(problem);
    FitIndex index(problem, sections);
    Plan plan{std::vector<Offset>(problem.size()), 0};
    for (std::uint32_t i = 0; i < problem.size(); ++i) {
      // The lowest offset at which no placed buffer is in the way, one by one.
      const auto free = [&](Offset offset) {
        for (std::uint32_t j = 0; j < i; ++j) {
          if (problem[i].lifetime.overlaps(problem[j].lifetime) &&
              Range{offset, problem[i].size}.overlaps({plan.offsets[j], problem[j].size})) {
            return false;
          }
        }
        return true;
      };
      Offset lowest = 0;
      while (!free(lowest)) lowest += problem[i].alignment;
      CHECK(index.first_fit(i) == lowest);
      plan.offsets[i] = round % 3 ? lowest : index.best_fit(i);
      CHECK(free(plan.offsets[i]));
      index.insert(i, plan.offsets[i]);
      if (random() % 4 == 0) {  // out and in again changes nothing
        const auto j = static_cast<std::uint32_t>(random() % (i + 1));
        index.erase(j);
        CHECK_FALSE(index.contains(j));
        index.insert(j, plan.offsets[j]);
      }
    }
    plan.arena_size = arena_size(problem, plan.offsets);
    CHECK_FALSE(check(problem, plan).has_value());
  }
}

}  // namespace memoir
