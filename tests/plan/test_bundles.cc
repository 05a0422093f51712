// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "doctest/doctest.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/search/exact/bundles.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
TEST_CASE("equal sizes are chained where one dies and the other is born, stacks where their sum does") {
  //  5 | b c |          a, then b on c in its place, then d; e has no partner
  //  3 |a c d| e
  const Problem problem{{{0, 4}, 5, 1}, {{4, 8}, 2, 1}, {{4, 8}, 3, 1}, {{8, 12}, 5, 1}, {{11, 14}, 4, 1}};
  const Sections sections = find_sections(problem);
  const Bundles bundles = tie(problem, sections, {});
  REQUIRE(bundles.problem.size() == 2);
  CHECK(bundles.bundle_of[0] == bundles.bundle_of[1]);
  CHECK(bundles.bundle_of[0] == bundles.bundle_of[2]);
  CHECK(bundles.bundle_of[0] == bundles.bundle_of[3]);
  CHECK(bundles.bundle_of[0] != bundles.bundle_of[4]);
  CHECK(bundles.problem[bundles.bundle_of[0]].size == 5);
  std::vector<Offset> offsets(2);
  offsets[bundles.bundle_of[4]] = 5;
  Plan plan{bundles.untie(offsets), 9};
  CHECK_FALSE(check(problem, plan).has_value());
}

TEST_CASE("every plan of the bundles is a plan of the problem, whatever the alignments and the ties") {
  const std::vector<std::vector<Size>> alignments{{1}, {1, 2, 4}, {2, 3}, {4}, {4, 8, 16}, {6, 4}};
  std::mt19937_64 random(30);
  std::size_t tied = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    const Problem problem =
        random_problem(random, 1 + random() % 30, 1 + random() % 20, 1 + random() % 9, alignments[round % 6]);
    const Bundles bundles =
        tie(problem, find_sections(problem), {round % 3 ? 1.0 : 0.7, static_cast<std::uint64_t>(round)});
    CAPTURE(round);
    tied += problem.size() - bundles.problem.size();
    if (round % 6 == 0) CHECK(load(bundles.problem) == load(problem));
    const std::vector<Offset> offsets =
        fit_in_order(bundles.problem, find_sections(bundles.problem),
                     make_order(bundles.problem, find_sections(bundles.problem), "W"), false);
    const Plan plan{bundles.untie(offsets), arena_size(bundles.problem, offsets)};
    CHECK_FALSE(check(problem, plan).has_value());
  }
  CHECK(tied > rounds(std::size_t{3000}));
}

TEST_CASE("what is found tied up is a plan within the capacity, and a failure is not a proof") {
  std::mt19937_64 random(31);
  int fits = 0, gave_up = 0;
  for (int round = 0; round < rounds(500); ++round) {
    const Problem problem = random_problem(random, 1 + random() % 7, 1 + random() % 8, 6,
                                           round % 2 ? std::vector<Size>{1} : std::vector<Size>{1, 2, 4});
    const Size best = best_arena(problem);
    const Bundles bundles = tie(problem, find_sections(problem), {});
    for (const Size capacity : {best - 1, best, best + 2}) {
      CAPTURE(round);
      std::vector<Offset> offsets;
      std::uint64_t work = 0;
      const Verdict verdict = search_tied(bundles, capacity, Ranking{"TWA"}, {}, offsets, work);
      CHECK(verdict != Verdict::kInfeasible);
      if (verdict == Verdict::kFits) {
        CHECK(capacity >= best);
        CHECK_FALSE(check(problem, {offsets, capacity}).has_value());
      }
      if (capacity == best) ++(verdict == Verdict::kFits ? fits : gave_up);
    }
  }
  CHECK(fits > rounds(400));
  CHECK(gave_up > 0);  // a restriction
}

TEST_CASE("tied up, minimalloc's D and J reach their load") {
  for (const char* name : {"D", "J"}) {
    const Problem problem = challenge("minimalloc/" + std::string(name) + ".1048576.csv");
    SearchOptions options;
    options.work_limit = 40'000'000;  // D takes thousands of placements, J some hundred thousands
    const SearchResult result = plan_auto(problem, options);
    CAPTURE(name);
    CHECK(result.optimal);
    CHECK(result.plan.arena_size == load(problem));
    CHECK_FALSE(check(problem, result.plan).has_value());
  }
}

}  // namespace memoir
