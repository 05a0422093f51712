// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/stream.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "problems.h"

namespace memoir {
namespace {

Problem by_birth(Problem problem) {
  std::stable_sort(problem.begin(), problem.end(),
                   [](const Buffer& a, const Buffer& b) { return a.lifetime.begin < b.lifetime.begin; });
  return problem;
}

Plan streamed(const Problem& problem, std::size_t* most_live = nullptr) {
  Plan plan;
  StreamPlanner planner([&](Offset offset) { plan.offsets.push_back(offset); });
  for (const Buffer& buffer : problem) planner.add(buffer);
  planner.finish();
  plan.arena_size = planner.arena_size();
  CHECK(planner.load() == load(problem));
  CHECK(planner.count() == problem.size());
  if (most_live) *most_live = planner.most_live();
  return plan;
}

}  // namespace

TEST_CASE("a stream gives a plan, over many windows, with alignments and with long lives") {
  std::mt19937_64 random(51);
  for (const Tick long_life : {200u, 40'000u}) {
    Problem problem;
    for (Tick i = 0; i < 150'000; ++i) {
      const Tick begin = random() % 150'000, length = 1 + random() % (random() % 100 == 0 ? long_life : 60);
      problem.push_back({{begin, begin + length}, 64 * (1 + random() % 512), Size{1} << (random() % 8)});
    }
    problem = by_birth(problem);
    std::size_t most_live = 0;
    const Plan plan = streamed(problem, &most_live);
    CHECK_FALSE(quick_check(problem, plan));
    CHECK(most_live < 2'000);
    CHECK(static_cast<double>(plan.arena_size) < 1.3 * static_cast<double>(load(problem)));
  }
}

TEST_CASE("streams that are none, and the empty one") {
  CHECK(streamed({}) == Plan{});
  StreamPlanner planner([](Offset) {});
  planner.add({{5, 6}, 1, 1});
  CHECK_THROWS_WITH_AS(planner.add({{4, 6}, 1, 1}), doctest::Contains("buffer 1 is born before"), Error);
  CHECK_THROWS_AS(planner.add({{6, 6}, 1, 1}), Error);
  CHECK_THROWS_AS(planner.add({{6, 7}, 0, 1}), Error);
  CHECK_THROWS_AS(planner.add({{6, 7}, 1, 0}), Error);
  CHECK_THROWS_AS(planner.add({{6, 7}, Size{1} << 63, 1}), Error);
}

}  // namespace memoir
