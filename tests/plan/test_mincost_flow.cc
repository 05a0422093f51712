// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/mincost_flow.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/simple/planners.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

Size cost(const Problem& problem, size_t taker, std::uint32_t donor) {
  const Size need = problem[taker].size, have = donor == kNoDonor ? 0 : problem[donor].size;
  return need > have ? need - have : 0;
}

/// The least cost of any sharing, by trying every donor for every buffer from `taker` on.
Size least_cost(const Problem& problem, size_t taker, std::vector<bool>& taken) {
  if (taker == problem.size()) return 0;
  Size least = cost(problem, taker, kNoDonor) + least_cost(problem, taker + 1, taken);
  for (std::uint32_t donor = 0; donor < problem.size(); ++donor) {
    if (taken[donor] || problem[donor].lifetime.end > problem[taker].lifetime.begin) continue;
    taken[donor] = true;
    least = std::min(least, cost(problem, taker, donor) + least_cost(problem, taker + 1, taken));
    taken[donor] = false;
  }
  return least;
}

}  // namespace

TEST_CASE("the flow costs as little as any") {
  std::mt19937_64 random(12);
  for (int round = 0; round < rounds(300); ++round) {
    Problem problem;
    for (size_t i = 1 + random() % 8; i > 0; --i) {
      const Tick begin = random() % 12;
      problem.push_back({{begin, begin + 1 + random() % 3}, 1 + random() % 9, 1});
    }
    const std::vector<std::uint32_t> donors = share_by_flow(problem);
    std::vector<bool> taken(problem.size());
    Size total = 0;
    for (size_t i = 0; i < problem.size(); ++i) {
      total += cost(problem, i, donors[i]);
      if (donors[i] == kNoDonor) continue;
      CHECK_FALSE(taken[donors[i]]);
      CHECK(problem[donors[i]].lifetime.end <= problem[i].lifetime.begin);
      taken[donors[i]] = true;
    }
    taken.assign(problem.size(), false);
    CHECK(total == least_cost(problem, 0, taken));
  }
}

TEST_CASE("tenants of one object with alignments that have only a large common multiple") {
  const Problem problem{{{0, 1}, 8, 6}, {{0, 9}, 5, 1}, {{1, 2}, 8, 4}};
  CHECK_FALSE(check(problem, mincost_flow(problem)));
}

TEST_CASE("too many buffers are refused, not waited for") {
  CHECK_THROWS_WITH_AS(mincost_flow(Problem(kMincostFlowLimit + 1, {{0, 1}, 1, 1})),
                       doctest::Contains("mincost_flow takes at most 5000 buffers, not 5001"), Error);
}

}  // namespace memoir
