// SPDX-License-Identifier: Apache-2.0
//
// Searches that know of gaps: whole buffers that are not needed for a while.
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "constraint_problems.h"
#include "doctest/doctest.h"
#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/constrained/gapped_search.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/core_first.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

/// As many buffers, half of them with a gap; `spread` ticks from the first birth to the last.
ConstrainedProblem with_gaps(std::mt19937_64& random, std::size_t count, Tick spread) {
  ConstrainedProblem problem;
  problem.constraints.gaps.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Tick begin = random() % spread, length = 3 + random() % (spread / 4);
    problem.buffers.push_back({{begin, begin + length}, 1 + random() % 100, random() % 8 == 0 ? Size{4} : 1});
    if (random() % 2 == 0) continue;
    const Tick gap = begin + 1 + random() % (length - 2);
    problem.constraints.gaps[i] = {{{gap, gap + 1 + random() % (begin + length - gap - 1)}, std::nullopt}};
  }
  return problem;
}

Stretches stretches_of_problem(const ConstrainedProblem& problem) {
  Stretches stretches;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    std::vector<Lifetime> lifetimes;
    for (const Piece& piece : pieces_of(problem, i)) lifetimes.push_back(piece.lifetime);
    stretches.add(problem.buffers[i], lifetimes);
  }
  return stretches;
}

std::optional<Violation> checked(const ConstrainedProblem& problem, const std::vector<Offset>& offsets) {
  return check(problem,
               {offsets, std::vector<std::uint32_t>(offsets.size()), {arena_size(problem.buffers, offsets)}});
}

}  // namespace

TEST_CASE("the exact search with gaps answers as the search over differences does") {
  std::mt19937_64 random(71);
  int below = 0;
  for (int round = 0; round < rounds(300); ++round) {
    const ConstrainedProblem problem = with_gaps(random, 2 + random() % 7, 6 + random() % 10);
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    REQUIRE(exact.optimal);
    const Stretches stretches = stretches_of_problem(problem);
    ExactSearch search(problem.buffers, stretches);
    CAPTURE(round);
    for (const char* keys : {"TWA", "WAT", "LTW"}) {
      std::vector<Offset> offsets;
      const Ranking ranking{keys, 0.2, random()};
      REQUIRE(search.run(exact.objective.total, ranking, {}, offsets) == Verdict::kFits);
      CHECK_FALSE(checked(problem, offsets));
      CHECK(arena_size(problem.buffers, offsets) <= exact.objective.total);
      if (exact.objective.total > 1)
        CHECK(search.run(exact.objective.total - 1, ranking, {}, offsets) == Verdict::kInfeasible);
    }
    below += exact.objective.total < load(problem.buffers);
  }
  CHECK(below > rounds(300) / 12);  // gaps matter
}

TEST_CASE("core first with gaps makes valid plans, and stops where it is told to") {
  std::mt19937_64 random(72);
  for (int round = 0; round < rounds(4); ++round) {
    const ConstrainedProblem problem = with_gaps(random, 300, 100);
    const Stretches stretches = stretches_of_problem(problem);
    const Sections sections = find_sections(stretches.pieces);
    for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
      CoreFirstOptions options;
      options.fit = fit;
      options.noise = round % 2 == 0 ? 0 : 0.2;
      options.retries = 7;
      std::uint64_t work = 0;
      const std::vector<Offset> offsets =
          core_first(problem.buffers, stretches, sections, sections.max_load(), options, {}, work);
      REQUIRE(offsets.size() == 300);
      CHECK_FALSE(checked(problem, offsets));
      CHECK(work >= 300);
      options.must_answer = false;
      SearchLimits limits;
      limits.nodes = 0;
      CHECK(core_first(problem.buffers, stretches, sections, sections.max_load(), options, limits, work)
                .size() <= 300);
    }
  }
}

TEST_CASE("with gaps, auto is no worse than first fit, repeats itself, and its bound holds") {
  std::mt19937_64 random(73);
  int better = 0;
  for (int round = 0; round < 2 + rounds(4); ++round) {
    const ConstrainedProblem problem = with_gaps(random, round % 2 == 0 ? 30 : 350, 30 + random() % 200);
    SearchOptions options;
    options.work_limit = 8000;
    options.seed = static_cast<std::uint64_t>(round);
    const ConstrainedResult found = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    const ConstrainedResult again = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    const ConstrainedResult fit = plan_constrained(problem, ConstrainedPlanner::kFirstFit, options);
    CAPTURE(round);
    CHECK_FALSE(check(problem, found.plan));
    CHECK(found.plan == again.plan);
    CHECK(found.objective.total <= fit.objective.total);
    CHECK(found.lower_bound.total <= found.objective.total);
    better += found.objective.total < fit.objective.total;
  }
  CHECK(better > 0);
}

}  // namespace memoir
