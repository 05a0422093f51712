// SPDX-License-Identifier: Apache-2.0
//
// auto against every planner that has a name, on many kinds of problems, whatever it may spend.
#include <array>
#include <atomic>
#include <string>

#include "doctest/doctest.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/simple/planners.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

/// Eight kinds: scattered, short-lived, long-lived, few sizes, alignments that differ, pools that are nearly
/// always full, rounds of a loop, and cut from a rectangle.
Problem draw(int kind, std::size_t count, std::mt19937_64& random) {
  Problem problem;
  const auto below = [&](std::uint64_t n) { return random() % n; };
  switch (kind) {
    case 0:
      return random_problem(random, count, 1 + count / 2, 1000);
    case 1:
      for (std::size_t i = 0; i < count; ++i) {
        const Tick begin = below(2 * count);
        problem.push_back({{begin, begin + 1 + below(8)}, 1 + below(5000), 1});
      }
      return problem;
    case 2:
      for (std::size_t i = 0; i < count; ++i) {
        const Tick begin = below(count);
        problem.push_back({{begin, begin + count / 2 + below(count)}, 1 + below(100), 1});
      }
      return problem;
    case 3:
      for (std::size_t i = 0; i < count; ++i) {
        const Tick begin = below(count);
        problem.push_back({{begin, begin + 1 + below(20)}, Size{64} << below(6), 1});
      }
      return problem;
    case 4:
      for (std::size_t i = 0; i < count; ++i) {
        const std::array<Size, 4> alignments{4, 64, 64, 4096};
        const Tick begin = below(count);
        problem.push_back({{begin, begin + 2 + below(20)}, 1 + below(1000), alignments[below(4)]});
      }
      return problem;
    case 5: {
      Size live = 0;
      std::vector<std::pair<Tick, Size>> ends;
      for (Tick tick = 0; problem.size() < count; ++tick) {
        std::erase_if(ends, [&](const auto& one) {
          if (one.first > tick) return false;
          live -= one.second;
          return true;
        });
        for (Size size = 32 * (1 + below(12)); live + size <= 4096 && problem.size() < count;
             size = 32 * (1 + below(12))) {
          const Tick end = tick + 1 + below(40);
          problem.push_back({{tick, end}, size, 1});
          ends.emplace_back(end, size);
          live += size;
        }
      }
      return problem;
    }
    case 6: {
      const std::size_t each = 3 + below(6);
      const Problem round = random_problem(random, each, 10, 300);
      for (std::size_t i = 0; i < count; ++i) {
        Buffer buffer = round[i % each];
        buffer.lifetime.begin += 7 * (i / each);
        buffer.lifetime.end += 7 * (i / each);
        problem.push_back(buffer);
      }
      return problem;
    }
    default: {
      std::vector<Buffer> parts{{{0, count}, 4096, 1}};
      while (parts.size() < count) {
        Buffer& one = parts[below(parts.size())];
        Buffer other = one;
        if (one.lifetime.end - one.lifetime.begin > 1 && below(2) == 0) {
          const Tick cut = one.lifetime.begin + 1 + below(one.lifetime.end - one.lifetime.begin - 1);
          one.lifetime.end = other.lifetime.begin = cut;
        } else if (one.size > 1) {
          const Size cut = 1 + below(one.size - 1);
          one.size = cut;
          other.size -= cut;
        } else {
          continue;
        }
        parts.push_back(other);
      }
      return parts;
    }
  }
}

void check_against_all(const Problem& problem, const SearchOptions& options) {
  const SearchResult found = plan_auto(problem, options);
  CHECK_FALSE(check(problem, found.plan).has_value());
  CHECK(found.lower_bound <= found.plan.arena_size);
  for (const Planner& planner : planners()) {
    // What takes a share of the time in seconds is compared where that is all or nothing.
    const bool timed = planner.run_within != nullptr && options.work_limit == 0;
    if (timed && options.deadline_s > 0) continue;
    const Plan other = timed ? planner.run_within(problem, options.deadline_s) : planner.run(problem);
    CAPTURE(planner.name);
    if (planner.name == "mincost_flow" && problem.size() > 100) continue;
    CHECK(found.plan.arena_size <= other.arena_size);
  }
  ConstrainedProblem plain;
  plain.buffers = problem;
  const ConstrainedResult first_fit = plan_constrained(plain, ConstrainedPlanner::kFirstFit, {});
  CHECK(found.plan.arena_size <= first_fit.plan.arena_sizes[0]);
  if (options.work_limit == 0) return;
  CHECK(found.plan.arena_size <= plan_exact(problem, options).plan.arena_size);
}

}  // namespace

TEST_CASE("auto is never worse than a planner that has a name, whatever it may spend") {
  const int seeds = rounds(40);
  for (int seed = 0; seed < seeds; ++seed) {
    for (int kind = 0; kind < 8; ++kind) {
      std::mt19937_64 random(1000 * seed + kind);
      const Problem problem = draw(kind, 5 + random() % (seed % 4 == 3 ? 150 : 40), random);
      CAPTURE(seed);
      CAPTURE(kind);
      SearchOptions options;
      options.threads = 1;
      if (seed % 3 == 0) options.work_limit = 1 + 300 * (static_cast<std::uint64_t>(seed) % 5);
      else options.deadline_s = seed % 3 == 1 ? 0 : 0.002;
      check_against_all(problem, options);
    }
  }
}

TEST_CASE("a stop before there was time for anything gives a plan, at any size") {
  const std::atomic<bool> stop{true};
  SearchOptions options;
  options.deadline_s = kNoDeadline;
  options.stop = &stop;
  for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{30'000}}) {
    std::mt19937_64 random(count);
    const Problem problem = draw(1, count, random);
    const SearchResult found = plan_auto(problem, options);
    CHECK_FALSE(quick_check(problem, found.plan).has_value());
    CHECK(found.lower_bound <= found.plan.arena_size);
    CHECK(found.work <= count);
    const SearchResult exact = plan_exact(problem, options);
    CHECK_FALSE(quick_check(problem, exact.plan).has_value());
  }
}

}  // namespace memoir
