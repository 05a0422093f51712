// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <chrono>
#include <numeric>

#include "doctest/doctest.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/attempts.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/search/exact/decompose.h"
#include "memoir/plan/search/exact/exact_search.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

Verdict fits(const Problem& problem, Size capacity, Plan* plan = nullptr, std::uint64_t seed = 0) {
  ExactSearch search(problem);
  Order order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Offset> offsets;
  const Verdict verdict = search.run(capacity, order, {}, offsets);
  if (plan) *plan = {offsets, capacity};
  return verdict;
}

}  // namespace

TEST_CASE("the exact search answers as brute force does, whatever the order and the alignments") {
  const std::vector<std::vector<Size>> alignments{{1},    {1, 2, 4},  {2, 3},      {4},
                                                  {6, 4}, {4, 8, 16}, {4, 64, 512}};
  std::mt19937_64 random(20);
  for (int round = 0; round < rounds(900); ++round) {
    const Problem problem =
        random_problem(random, 1 + random() % 6, 1 + random() % 7, 1 + random() % 12, alignments[round % 7]);
    const Size best = best_arena(problem);
    CAPTURE(round);
    Plan plan;
    CHECK(fits(problem, best, &plan, round) == Verdict::kFits);
    CHECK_FALSE(check(problem, plan).has_value());
    CHECK(fits(problem, best - 1, nullptr, round) == Verdict::kInfeasible);
    CHECK(fits(problem, best + 1, &plan, round) == Verdict::kFits);
    CHECK_FALSE(check(problem, plan).has_value());
  }
}

TEST_CASE("plan_exact finds and proves the optimum of small problems") {
  std::mt19937_64 random(21);
  for (int round = 0; round < rounds(300); ++round) {
    const Problem problem = random_problem(random, 1 + random() % 7, 1 + random() % 8, 9,
                                           round % 2 ? std::vector<Size>{1} : std::vector<Size>{1, 2, 4});
    const Size best = best_arena(problem);
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    options.threads = 1 + round % 2;
    const SearchResult result = plan_exact(problem, options);
    CAPTURE(round);
    CHECK(result.plan.arena_size == best);
    CHECK(result.lower_bound == best);
    CHECK(result.optimal);
    CHECK_FALSE(check(problem, result.plan).has_value());
    CHECK_FALSE(result.bound_reason.empty());

    options.capacity = best - 1;
    const SearchResult none = plan_exact(problem, options);
    CHECK(none.proven_infeasible);
    CHECK(none.lower_bound == best);
    CHECK_FALSE(check(problem, none.plan).has_value());
  }
}

TEST_CASE("where the load cannot be reached, that is proven by search") {
  const Problem problem{{{5, 6}, 4, 1}, {{3, 6}, 1, 1}, {{0, 5}, 1, 1}, {{0, 6}, 4, 1}, {{1, 3}, 4, 1},
                        {{4, 7}, 3, 1}, {{2, 4}, 2, 1}, {{3, 5}, 2, 1}, {{2, 5}, 2, 1}, {{0, 2}, 3, 1}};
  const SearchResult result = plan_exact(problem);
  CHECK(load(problem) == 13);
  CHECK(result.lower_bound == 14);
  CHECK(result.optimal);
  CHECK(result.bound_reason.find("search") == 0);
  CHECK(best_arena(problem) == 14);  // all 10! orders
}

TEST_CASE("minimalloc's challenging instances fit their capacity") {
  for (const char* name : {"A", "C", "D", "E", "G", "J", "K"}) {
    const Problem problem = challenge("minimalloc/" + std::string(name) + ".1048576.csv");
    SearchOptions options;
    options.deadline_s = kNoDeadline;
    options.capacity = 1048576;
    const SearchResult result = plan_exact(problem, options);
    CAPTURE(name);
    CHECK(result.plan.arena_size <= 1048576);
    CHECK_FALSE(check(problem, result.plan).has_value());
    CHECK(result.work < 2'000'000);
  }
}

TEST_CASE("a node limit is an answer of its own, never a proof") {
  const Problem problem = challenge("minimalloc/D.1048576.csv");
  ExactSearch search(problem);
  std::vector<Offset> offsets;
  SearchLimits limits;
  limits.nodes = 500;
  const Order order = make_order(problem, search.sections(), "Z");
  CHECK(search.run(load(problem), order, limits, offsets) == Verdict::kGaveUp);
  CHECK(search.nodes() <= 501);
  CHECK(search.run(load(problem) - 1, order, limits, offsets) == Verdict::kInfeasible);
}

TEST_CASE("of several attempts the lowest that answers wins, however many threads there are") {
  for (const unsigned threads : {1u, 2u, 5u}) {
    const auto run = [&](std::size_t k, unsigned, const std::atomic<bool>&) {
      return k == 7 || k == 4 || k == 30;
    };
    CHECK(first_attempt(40, threads, true, run) == 4);
    CHECK(first_attempt(3, threads, true, run) == 3);
  }
}

TEST_CASE("a dive over thousands of buffers needs no more stack than a small one") {
  // Chains that overlap: no cut before the end, so one open node for each buffer.
  Problem problem;
  for (Tick i = 0; i < 6'000; ++i) problem.push_back({{i, i + 3}, 1 + i % 7, 1});
  struct Task {
    const Problem& problem;
    Verdict verdict = Verdict::kGaveUp;
    std::vector<Offset> offsets{};
  } task{problem};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    Task& task = *static_cast<Task*>(argument);
    ExactSearch search(task.problem);
    const Size capacity = search.sections().max_load() + 7;
    task.verdict = search.run(capacity, make_order(task.problem, search.sections(), "L"), {}, task.offsets);
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &task) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  CHECK(task.verdict == Verdict::kFits);
  CHECK_FALSE(quick_check(problem, {task.offsets, arena_size(problem, task.offsets)}));
}

TEST_CASE("deeply nested lifetimes are cut a hundred times, not a hundred thousand") {
  Problem problem;  // at each level one that lives throughout, and two parts: a dot and all the rest
  constexpr Tick kLevels = 20'000;
  for (Tick i = 0; i < kLevels; ++i) {
    problem.push_back({{2 * i, 4 * kLevels}, 1, 1});
    problem.push_back({{2 * i, 2 * i + 1}, 2, 1});
  }
  const Decomposition parts = decompose(problem);
  CHECK(parts.placed.size() < 500);
  std::size_t buffers = parts.placed.size();
  for (const Part& part : parts.parts) buffers += part.buffers.size();
  CHECK(buffers == problem.size());
}

}  // namespace memoir
