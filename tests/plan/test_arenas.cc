// SPDX-License-Identifier: Apache-2.0
#include "constraint_problems.h"
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/constrained/arena_planner.h"
#include "memoir/plan/constrained/constrained.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

/// Many buffers, of which the dear ones have room in a small arena at no time.
ConstrainedProblem crowded(std::mt19937_64& random, std::size_t count, std::size_t limited) {
  ConstrainedProblem problem;
  for (std::size_t i = 0; i < count; ++i) {
    const Tick begin = random() % count;
    const Size size = 64 * (1 + random() % 40);
    problem.buffers.push_back({{begin, begin + 1 + random() % 20}, size, 64});
    problem.constraints.weights.push_back(size * (1 + random() % 9));
  }
  const Size all = load(problem.buffers);
  for (std::size_t k = 0; k < limited; ++k)
    problem.constraints.arenas.push_back({"fast" + std::to_string(k), all / (4 - k), 1 + 3 * k, {}});
  problem.constraints.arenas.push_back({"slow", kNoLimit, 20, {}});
  return problem;
}

}  // namespace

TEST_CASE("no plan costs less than what the arenas' prices prove") {
  std::mt19937_64 random(11);
  int compared = 0, met = 0, found_best = 0;
  for (int round = 0; round < rounds(1500); ++round) {
    const unsigned mixed = round % 3 == 0 ? 0u : static_cast<unsigned>(random() & random() & kEveryFeature);
    const unsigned features = (mixed & ~(0u | kReplan | kMoves | kEmpty)) | kArenas;
    const ConstrainedProblem problem = random_constrained(random, 5, features);
    try {
      validate(problem);
    } catch (const Error&) {
      continue;
    }
    const Bodies bodies = make_bodies(problem);
    if (!ArenaPlanner::worthwhile(bodies)) continue;
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    if (!exact.optimal) continue;
    INFO("round ", round, ", features ", features);
    const Sections sections = find_sections(bodies.pieces);
    options.work_limit = 4000;
    ArenaPlanner planner(bodies, sections, options);
    std::uint64_t work = 0, least = ~std::uint64_t{0};
    planner.run(std::chrono::steady_clock::time_point::max(), work, [&](const ConstrainedPlan& plan) {
      CHECK_FALSE(check(problem, plan));
      if (fits(problem, plan)) least = std::min(least, cost_of(problem, plan));
      return false;
    });
    CHECK(planner.bound() <= exact.objective.cost);
    CHECK(least >= exact.objective.cost);
    ++compared;
    met += planner.bound() == exact.objective.cost;
    found_best += least == exact.objective.cost;
  }
  CHECK(compared > rounds(200));
  CHECK(met > compared / 2);
  CHECK(found_best > compared * 4 / 5);
}

TEST_CASE("who goes to the small arenas costs little more than what is proven") {
  std::mt19937_64 random(12);
  for (int round = 0; round < rounds(4); ++round) {
    for (const std::size_t limited : {1u, 2u, 3u}) {
      const ConstrainedProblem problem = crowded(random, 150, limited);
      SearchOptions options;
      options.work_limit = 60'000;
      options.seed = static_cast<std::uint64_t>(round);
      const ConstrainedResult result = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
      CAPTURE(round);
      CAPTURE(limited);
      REQUIRE(result.fits);
      CHECK_FALSE(check(problem, result.plan));
      CHECK(result.lower_bound.cost <= result.objective.cost);
      CHECK(static_cast<double>(result.objective.cost) <= 1.3 * static_cast<double>(result.lower_bound.cost));
      const ConstrainedResult fit = plan_constrained(problem, ConstrainedPlanner::kFirstFit, options);
      CHECK(result.objective <= fit.objective);
      const ConstrainedResult again = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
      CHECK(again.plan == result.plan);  // a work limit makes it repeatable
    }
  }
}

TEST_CASE("two full arenas of one cost are filled") {
  // Halves of a full rectangle each: no first fit finds both, but who goes where can be found.
  std::mt19937_64 random(13);
  for (int round = 0; round < rounds(10); ++round) {
    ConstrainedProblem problem;
    for (int half = 0; half < 2; ++half) {
      for (Tick tick = 0; tick < 6; ++tick) {
        Size left = 12;
        while (left > 0) {
          const Size size = std::min<Size>(left, 1 + random() % 6);
          problem.buffers.push_back({{tick, tick + 1}, size, 1});
          left -= size;
        }
      }
    }
    problem.constraints.arenas = {{"a", 12, 1, {}}, {"b", 12, 1, {}}};
    SearchOptions options;
    options.work_limit = 200'000;
    const ConstrainedResult result = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    CAPTURE(round);
    REQUIRE(result.found);
    CHECK(result.fits);
    CHECK_FALSE(check(problem, result.plan));
  }
}

TEST_CASE("a search for arenas stops when it is told to") {
  std::mt19937_64 random(14);
  const ConstrainedProblem problem = crowded(random, 3000, 2);
  std::atomic<bool> stop{true};
  SearchOptions options;
  options.deadline_s = kNoDeadline;
  options.stop = &stop;
  const ConstrainedResult result = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
  CHECK(result.found);
  CHECK_FALSE(check(problem, result.plan));
}

}  // namespace memoir
