// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "constraint_problems.h"
#include "doctest/doctest.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/files/csv.h"
#include "support/rounds.h"

namespace memoir {
namespace {

bool acceptable(const ConstrainedProblem& problem) {
  try {
    validate(problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

using Value = std::tuple<std::uint64_t, std::uint64_t, Size>;

Value value_of(const ConstrainedProblem& problem, const ConstrainedPlan& plan, bool limited) {
  const Objective objective = objective_of(problem, plan);
  const Size pays = paid(problem, plan);
  return {objective.moves, objective.cost, limited ? pays : objective.total + pays};
}

// The least of all placements below `height` that are plans and keep to the limits; nothing: there are none.
std::optional<Value> least(const ConstrainedProblem& problem, Size height, bool limited) {
  ConstrainedPlan plan;
  const std::size_t n = problem.buffers.size(), arenas = arenas_of(problem.constraints).size();
  plan.offsets.resize(n);
  plan.arenas.resize(n);
  std::optional<Value> best;
  const std::function<void(std::size_t)> place = [&](std::size_t i) {
    if (i == n) {
      plan.arena_sizes.assign(arenas, 0);
      for (std::size_t k = 0; k < n; ++k) {
        Size& top = plan.arena_sizes[plan.arenas[k]];
        if (problem.buffers[k].size > 0) top = std::max(top, plan.offsets[k] + problem.buffers[k].size);
      }
      const Value value = value_of(problem, plan, limited);
      if ((!best || value < *best) && fits(problem, plan) && !check(problem, plan)) best = value;
      return;
    }
    for (plan.arenas[i] = 0; plan.arenas[i] < arenas; ++plan.arenas[i]) {
      for (plan.offsets[i] = 0; plan.offsets[i] + problem.buffers[i].size <= height;
           plan.offsets[i] += problem.buffers[i].alignment)
        place(i + 1);
    }
    plan.arenas[i] = 0;
  };
  place(0);
  return best;
}

void add_prices(ConstrainedProblem& problem, std::mt19937_64& random) {
  const auto n = static_cast<std::uint32_t>(problem.buffers.size());
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t j = 0; j < i; ++j) {
      if (random() % 2 == 0) problem.constraints.prices.push_back({j, i, random() % 4});
    }
  }
}

void compare(std::mt19937_64& random, unsigned features, int wanted) {
  int solved = 0, paying = 0;
  for (int round = 0; round < 100 * wanted && solved < wanted; ++round) {
    ConstrainedProblem problem = random_constrained(random, 4, features);
    for (Buffer& buffer : problem.buffers) {  // so that few ends meet
      if (buffer.lifetime.end - buffer.lifetime.begin > 2 && problem.constraints.gaps.empty())
        buffer.lifetime.end = buffer.lifetime.begin + 2;
    }
    add_prices(problem, random);
    const bool limited = round % 3 == 0 && problem.constraints.arenas.empty();
    if (!acceptable(problem) || problem.constraints.prices.empty()) continue;
    Size height = 0;
    for (const Buffer& buffer : problem.buffers) height += buffer.size;
    if (height > (problem.constraints.several_arenas() ? 9u : 14u)) continue;
    SearchOptions options;
    options.deadline_s = std::numeric_limits<double>::infinity();
    if (limited) options.capacity = 1 + random() % height;
    CAPTURE(features);
    CAPTURE(round);
    ConstrainedProblem bounded = problem;
    if (limited) bounded.constraints.arenas = {{"", *options.capacity, 0, {}}};
    const std::optional<Value> wanted_value = least(bounded, height + 2, limited);
    const ConstrainedResult exact = plan_constrained(problem, ConstrainedPlanner::kExact, options);
    if (!wanted_value) {
      CHECK_FALSE(exact.fits);
      continue;
    }
    REQUIRE(exact.fits);
    CHECK_FALSE(check(problem, exact.plan));
    CHECK(exact.paid == paid(problem, exact.plan));
    CHECK(exact.optimal);
    CHECK(value_of(problem, exact.plan, limited) == *wanted_value);
    CHECK(exact.least_priced == std::get<2>(*wanted_value));
    options.work_limit = 30'000;
    for (const auto planner : {ConstrainedPlanner::kAuto, ConstrainedPlanner::kFirstFit}) {
      const ConstrainedResult other = plan_constrained(problem, planner, options);
      if (!other.fits) continue;
      CHECK_FALSE(check(problem, other.plan));
      const Value value = value_of(problem, other.plan, limited);
      CHECK(value >= *wanted_value);
      if (other.optimal) CHECK(value == *wanted_value);
      CHECK(other.least_priced <= std::get<2>(*wanted_value));
    }
    paying += exact.paid > 0;
    ++solved;
  }
  CHECK(solved == wanted);
  CAPTURE(features);
  if (features == 0 && wanted >= 12) CHECK(paying > 0);  // fewer rounds under the sanitizers: chance
}

}  // namespace

TEST_CASE("with prices, exact is what looking through every placement finds") {
  std::mt19937_64 random(1);
  for (const unsigned features : {0u, 0u + kWindows, 0u + kFixed, 0u + kEdges, 0u + kGraph, 0u + kInPlace,
                                  0u + kAlias, 0u + kEmpty, 0u + kArenas})
    compare(random, features, rounds(12));
}

TEST_CASE("a wait is paid where it is cheaper than the bytes, and not where it is dearer") {
  for (const Size price : {Size{3}, Size{9}}) {
    ConstrainedProblem problem{{{{0, 2}, 5, 1}, {{2, 4}, 5, 1}}, {}, {}, {}};
    problem.constraints.prices = {{0, 1, price}};
    const ConstrainedResult found = plan_constrained(problem, ConstrainedPlanner::kAuto);
    CHECK(found.optimal);
    CHECK(found.paid == (price < 5 ? price : 0));
    CHECK(found.plan.arena_sizes[0] == (price < 5 ? 5 : 10));
    SearchOptions options;
    options.capacity = 10;  // bytes below the capacity are worth nothing
    CHECK(plan_constrained(problem, ConstrainedPlanner::kAuto, options).paid == 0);
    options.capacity = 9;
    const ConstrainedResult tight = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    CHECK(tight.fits);
    CHECK(tight.optimal);
    CHECK(tight.paid == price);
  }
}

TEST_CASE("many pairs: the same plan for a work limit, and no more paid than without looking at prices") {
  std::mt19937_64 random(5);
  ConstrainedProblem problem;
  for (int i = 0; i < 80; ++i) {
    const Tick begin = random() % 120;
    problem.buffers.push_back({{begin, begin + 1 + random() % 12}, 64 * (1 + random() % 20), 64});
  }
  SearchOptions options;
  options.work_limit = 100'000;
  const ConstrainedResult blind = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
  for (std::uint32_t i = 0; i < 80; ++i) {  // what is born just after another dies waits
    for (std::uint32_t j = 0; j < 80; ++j) {
      const Tick end = problem.buffers[i].lifetime.end, begin = problem.buffers[j].lifetime.begin;
      if (begin >= end && begin < end + 3)
        problem.constraints.prices.push_back({i, j, 16 * (1 + random() % 40)});
    }
  }
  const Size before = blind.objective.total + paid(problem, blind.plan);
  const ConstrainedResult found = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
  CHECK_FALSE(check(problem, found.plan));
  CHECK(found.objective.total + found.paid < before);
  CHECK(found.least_priced <= found.objective.total + found.paid);
  CHECK(plan_constrained(problem, ConstrainedPlanner::kAuto, options).plan == found.plan);
  MESSAGE("arena and prices: ", before, " -> ", found.objective.total, " + ", found.paid, ", at least ",
          found.least_priced);
}

TEST_CASE("prices in a file are of buffers and of classes") {
  const CsvProblem csv = parse_csv(
      "id,lower,upper,size,class,price\na,0,2,4,dma,\nb,2,4,4,dma,a:3\nc,4,6,4,mma,@dma:2 b:1\n", "p.csv");
  CHECK(csv.constraints.prices == std::vector<PricedPair>{{1, 0, 3}, {2, 0, 2}, {2, 1, 2}, {2, 1, 1}});
  const auto refused = [](const std::string& price) {
    return "id,lower,upper,size,class,price\na,0,2,4,dma,\nb,2,4,4,," + price + "\n";
  };
  for (const char* wrong : {"a", "x:3", "@mma:3", "a:-1", "a:x", "b:1"})
    CHECK_THROWS_AS(validate(to_constrained(parse_csv(refused(wrong), "p.csv"), {})), Error);
}

}  // namespace memoir
