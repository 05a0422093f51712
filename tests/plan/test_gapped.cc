// SPDX-License-Identifier: Apache-2.0
//
// Searches that know of gaps, in which whole buffers are not needed, and of obstacles: buffers with a fixed
// offset and bytes that nobody may touch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "constraint_problems.h"
#include "doctest/doctest.h"
#include "memoir/base/error.h"
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

/// Of some buffers the offset, as a plan of the whole has it, so that the others fit around them; and up to
/// two ranges of bytes where none of those lies.
void put_in_the_way(std::mt19937_64& random, ConstrainedProblem& problem, unsigned one_in) {
  const ConstrainedResult plan = plan_constrained(problem, ConstrainedPlanner::kFirstFit);
  Constraints& said = problem.constraints;
  said.fixed.assign(problem.buffers.size(), kNoOffset);
  for (std::size_t i = 0; i < said.fixed.size(); ++i) {
    if (random() % one_in == 0) said.fixed[i] = plan.plan.offsets[i];
  }
  said.arenas = {ArenaChoice{}};
  for (std::uint64_t k = random() % 3; k > 0; --k) {
    const Range range{random() % plan.objective.total, 1 + random() % 5};
    bool clear = true;
    for (std::size_t i = 0; i < said.fixed.size(); ++i)
      clear &= said.fixed[i] == kNoOffset || !range.overlaps({said.fixed[i], problem.buffers[i].size});
    if (clear) said.arenas[0].forbidden.push_back(range);
  }
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

/// What can be placed, what cannot, and the buffers of the former.
struct Split {
  Problem free;
  std::vector<std::uint32_t> buffers;
  Stretches stretches;
  Size fixed_end = 0;
};
Split split_of(const ConstrainedProblem& problem) {
  Split split;
  const auto& fixed = problem.constraints.fixed;
  const Stretches all = stretches_of_problem(problem);
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) {
    if (fixed[i] != kNoOffset) continue;
    split.free.push_back(problem.buffers[i]);
    split.buffers.push_back(i);
    split.stretches.add(problem.buffers[i], all.of(i));
  }
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) {
    if (fixed[i] == kNoOffset) continue;
    const Range range{fixed[i], problem.buffers[i].size};
    split.fixed_end = std::max(split.fixed_end, range.end());
    for (const Lifetime& lifetime : all.of(i)) split.stretches.add_obstacle(lifetime, range);
  }
  for (const Range& range : problem.constraints.arenas[0].forbidden)
    split.stretches.add_obstacle({0, Tick{1} << 20}, range);
  return split;
}

std::optional<Violation> checked(const ConstrainedProblem& problem, const Split& split,
                                 const std::vector<Offset>& offsets) {
  std::vector<Offset> all = problem.constraints.fixed;
  for (std::size_t k = 0; k < offsets.size(); ++k) all[split.buffers[k]] = offsets[k];
  return checked(problem, all);
}

TEST_CASE("the exact search around obstacles answers as the search over differences does") {
  std::mt19937_64 random(74);
  int above = 0, refuted = 0;
  for (int round = 0; round < rounds(300); ++round) {
    ConstrainedProblem problem = with_gaps(random, 3 + random() % 6, 6 + random() % 8);
    for (Buffer& buffer : problem.buffers) {
      buffer.size = 1 + buffer.size % 12;
      if (round % 3 == 0) buffer.alignment = 1 + random() % 4;  // its grid is not that of the obstacles
    }
    put_in_the_way(random, problem, 3);
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    REQUIRE(exact.optimal);
    const Split split = split_of(problem);
    if (split.free.empty()) continue;
    ExactSearch search(split.free, split.stretches);
    CAPTURE(round);
    for (const char* keys : {"TWA", "WAT", "LTW"}) {
      std::vector<Offset> offsets;
      const Ranking ranking{keys, 0.2, random()};
      REQUIRE(search.run(exact.objective.total, ranking, {}, offsets) == Verdict::kFits);
      CHECK_FALSE(checked(problem, split, offsets));
      CHECK(arena_size(split.free, offsets) <= exact.objective.total);
      if (exact.objective.total == split.fixed_end) continue;
      CHECK(search.run(exact.objective.total - 1, ranking, {}, offsets) == Verdict::kInfeasible);
      ++refuted;
    }
    above += exact.objective.total > find_sections(stretches_of_problem(problem).pieces).max_load();
  }
  CHECK(above > rounds(300) / 12);  // obstacles matter
  CHECK(refuted > rounds(300) / 3);
}

TEST_CASE("core first puts the rest around obstacles") {
  std::mt19937_64 random(75);
  for (int round = 0; round < rounds(4); ++round) {
    ConstrainedProblem problem = with_gaps(random, 300, 100);
    put_in_the_way(random, problem, 5);
    const Split split = split_of(problem);
    const Sections sections = find_sections(split.stretches.pieces);
    for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
      CoreFirstOptions options;
      options.fit = fit;
      options.noise = round % 2 == 0 ? 0 : 0.2;
      options.retries = 7;
      std::uint64_t work = 0;
      const std::vector<Offset> offsets =
          core_first(split.free, split.stretches, sections, sections.max_load(), options, {}, work);
      REQUIRE(offsets.size() == split.free.size());
      CHECK_FALSE(checked(problem, split, offsets));
    }
  }
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

TEST_CASE("around small obstacles, auto proves no more than the complete search finds") {
  std::mt19937_64 random(76);
  int proven = 0;
  for (int round = 0; round < rounds(200); ++round) {
    // Rows, aliases and windows are bodies that are not whole; what may be in place is merged.
    ConstrainedProblem problem = random_constrained(
        random, 3 + random() % 3,
        random() % kEveryFeature & ~(kBanks | kArenas | kReplan | kMoves | kGraph | kEdges));
    try {
      validate(problem);
    } catch (const Error&) {
      continue;
    }
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    REQUIRE(exact.optimal);
    options.work_limit = 3000;
    const ConstrainedResult found = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    CAPTURE(round);
    REQUIRE(found.found);
    CHECK_FALSE(check(problem, found.plan));
    CHECK(found.objective >= exact.objective);
    CHECK(found.lower_bound <= exact.objective);
    proven += found.optimal;
  }
  CHECK(proven > rounds(200) / 10);
}

TEST_CASE("with gaps and obstacles, auto is no worse than first fit, repeats itself, and its bound holds") {
  std::mt19937_64 random(73);
  int better = 0;
  for (int round = 0; round < 4 + rounds(8); ++round) {
    ConstrainedProblem problem = with_gaps(random, round % 2 == 0 ? 30 : 350, 30 + random() % 200);
    if (round % 4 >= 2) put_in_the_way(random, problem, 6);
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
