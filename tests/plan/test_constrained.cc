// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/constrained.h"

#include <limits>

#include "constraint_problems.h"
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

constexpr Objective kAny{~std::uint64_t{0}, ~std::uint64_t{0}, ~Size{0}};

bool acceptable(const ConstrainedProblem& problem) {
  try {
    validate(problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// `exact` finds what no placement at all is better than, and the others nothing better than that.
void compare(std::mt19937_64& random, std::size_t count, unsigned features, int wanted) {
  int solved = 0, infeasible = 0;
  for (int round = 0; round < 60 * wanted && solved + infeasible < wanted; ++round) {
    const ConstrainedProblem problem = random_constrained(random, count, features);
    if (!acceptable(problem)) continue;
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    INFO("features ", features, ", round ", round);
    EveryPlacement all(problem, 30);
    if (exact.proven_infeasible) {
      CHECK_FALSE(all.exists_below(kAny));
      ++infeasible;
      continue;
    }
    REQUIRE(exact.found);
    CHECK_FALSE(check(problem, exact.plan));
    CHECK(exact.optimal);
    CHECK_FALSE(all.exists_below(exact.objective));
    for (const auto planner : {ConstrainedPlanner::kAuto, ConstrainedPlanner::kFirstFit}) {
      options.work_limit = 20'000;
      const ConstrainedResult other = plan_constrained(problem, planner, options);
      if (!other.found) continue;
      CHECK_FALSE(check(problem, other.plan));
      if (other.fits) {
        CHECK(other.objective >= exact.objective);
        CHECK(other.lower_bound <= exact.objective);
      }
      if (planner == ConstrainedPlanner::kAuto && other.optimal) CHECK(other.objective == exact.objective);
    }
    ++solved;
  }
  CHECK(solved + infeasible == wanted);
  CHECK(solved > 0);
}

}  // namespace

TEST_CASE("exact is what looking through every placement finds: each feature") {
  std::mt19937_64 random(1);
  for (unsigned feature = 1; feature < kEveryFeature; feature *= 2) {
    const unsigned features = feature == kMoves ? kReplan | kMoves : feature;
    compare(random, 4, features, rounds(25));
    compare(random, 5, features, rounds(5));
  }
}

TEST_CASE("exact is what looking through every placement finds: any mixture") {
  std::mt19937_64 random(2);
  for (int mixture = 0; mixture < rounds(40); ++mixture) {
    auto features = static_cast<unsigned>(random() & random() & kEveryFeature);
    if (features & kRows)
      features &= ~(0u | kInPlace | kBanks | kReplan | kFixed);  // refused, or nearly always
    compare(random, 3 + random() % 2, features, 4);
  }
}

TEST_CASE("a tolerance ends constrained searches too, and proves nothing") {
  std::mt19937_64 random(3);
  int stopped = 0;
  for (int round = 0; round < rounds(300); ++round) {
    const ConstrainedProblem problem =
        random_constrained(random, 6, kWindows | (round % 2 == 0 ? kInPlace : kFixed));
    if (!acceptable(problem)) continue;
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    if (!exact.optimal) continue;
    options.tolerance.bytes = 3;
    for (const auto planner : {ConstrainedPlanner::kExact, ConstrainedPlanner::kAuto}) {
      if (planner == ConstrainedPlanner::kAuto) options.work_limit = 20'000;
      const ConstrainedResult close = plan_constrained(problem, planner, options);
      CAPTURE(round);
      REQUIRE(close.fits);
      CHECK_FALSE(check(problem, close.plan));
      CHECK(close.lower_bound <= exact.objective);
      if (planner == ConstrainedPlanner::kExact) CHECK(close.objective.total <= exact.objective.total + 3);
      CHECK(close.optimal == (close.objective <= close.lower_bound));
      stopped += close.objective.total > exact.objective.total;
    }
  }
  CHECK(stopped > 0);
}

}  // namespace memoir
