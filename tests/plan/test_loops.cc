// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/search/loop/loop_search.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

// Each buffer of the body once a round, `period` ticks after the last one.
Problem loop_of(const Problem& body, Tick period, std::size_t rounds, Tick begin = 0) {
  Problem problem;
  for (std::size_t r = 0; r < rounds; ++r) {
    for (Buffer buffer : body) {
      buffer.lifetime.begin += begin + r * period;
      buffer.lifetime.end += begin + r * period;
      problem.push_back(buffer);
    }
  }
  return problem;
}

// Rows of four stages, of which later ones read one to three of each, and what a row needs while it is made.
Problem line_buffers(std::size_t rounds) {
  const Problem body{{{0, 9}, 27'648, 1}, {{0, 1}, 9'504, 1},  {{1, 6}, 20'480, 1}, {{1, 2}, 10'880, 1},
                     {{2, 7}, 23'040, 1}, {{2, 3}, 11'520, 1}, {{3, 12}, 6'656, 1}, {{3, 4}, 624, 1}};
  return loop_of(body, 4, rounds);
}

void add(Problem& problem, const Problem& more) { problem.insert(problem.end(), more.begin(), more.end()); }

// Runs some turns; every plan is one. Says whether there was any.
bool check_turns(const Problem& problem, const std::vector<std::uint32_t>& said, int turns,
                 std::uint64_t seed) {
  const Sections sections = find_sections(problem);
  LoopSearch search(problem, sections, said, seed);
  std::uint64_t work = 0;
  bool any = false;
  Size arena = ~Size{0};
  for (int turn = 0; turn < turns && search.worthwhile() && !search.ended(); ++turn) {
    const std::vector<Offset> offsets = search.step(sections.max_load(), {}, work);
    if (offsets.empty()) continue;
    any = true;
    const Plan plan{offsets, arena_size(problem, offsets)};
    CHECK(plan.arena_size < arena);
    CHECK(plan.arena_size == search.arena());
    arena = plan.arena_size;
    const auto wrong = quick_check(problem, plan);
    CHECK_MESSAGE(!wrong, (wrong ? wrong->what : ""));
  }
  return any;
}

std::uint64_t round_seed(int round) { return static_cast<std::uint64_t>(round) + 1; }

}  // namespace

TEST_CASE("the period of a loop is found between a prologue and an epilogue") {
  Problem problem{{{0, 3}, 100, 1}, {{1, 9}, 7, 1}};
  add(problem, loop_of({{{0, 5}, 10, 1}, {{1, 2}, 20, 1}, {{2, 4}, 10, 1}}, 3, 50, 10));
  add(problem, {{{165, 170}, 30, 1}, {{166, 171}, 31, 1}});
  const std::vector<Loop> loops = find_loops(problem, find_sections(problem));
  REQUIRE(loops.size() == 1);
  CHECK(loops[0].body.size() == 3);
  CHECK(loops[0].instances.size() >= 140);
  std::size_t rounds = 0;
  for (const LoopInstance& one : loops[0].instances) {
    CHECK(problem[one.buffer].size == loops[0].body[one.body].size);
    rounds = std::max(rounds, static_cast<std::size_t>(one.round) + 1);
  }
  CHECK(rounds >= 46);
}

TEST_CASE("there is no loop in what does not repeat") {
  std::mt19937_64 random(3);
  const Problem problem = random_problem(random, 500, 400, 1000);
  CHECK(find_loops(problem, find_sections(problem)).empty());
  CHECK(find_loops({}, find_sections({})).empty());
}

TEST_CASE("what is unrolled is a plan: with prologues, epilogues, weights, alignments, two loops") {
  std::mt19937_64 random(4);
  int found = 0;
  const int count = rounds(60);
  for (int round = 0; round < count; ++round) {
    const Tick period = 2 + random() % 9;
    const auto body = [&] {
      return random_problem(random, 2 + random() % 8, 1 + random() % (3 * period), 40,
                            round % 3 == 0 ? std::vector<Size>{1, 4, 32} : std::vector<Size>{1});
    };
    Problem problem = random_problem(random, random() % 20, 3 * period, 40);
    add(problem, loop_of(body(), period, 12 + random() % 30, 2 * period));
    const Tick end = 60 * period;
    if (round % 2 == 0) add(problem, loop_of(body(), period + 1, 20, 30 * period));
    for (Buffer& buffer : problem) buffer.lifetime.end = std::min(buffer.lifetime.end, end);
    std::erase_if(problem, [](const Buffer& b) { return b.lifetime.begin >= b.lifetime.end; });
    if (round % 4 == 0) problem.push_back({{1, end - 1}, 25, 1});
    std::shuffle(problem.begin(), problem.end(), random);
    CAPTURE(round);
    found += check_turns(problem, {}, 12, round_seed(round));
  }
  CHECK(found > count / 3);
}

TEST_CASE("whatever is said to be a loop, what comes of it is a plan") {
  std::mt19937_64 random(5);
  int found = 0;
  const int count = rounds(60);
  for (int round = 0; round < count; ++round) {
    const Tick period = 8 + random() % 9;
    const Problem body = random_problem(random, 2 + random() % 5, period, 40, {1, 2, 8});
    Problem problem = loop_of(body, period, 20);
    std::vector<std::uint32_t> said;
    for (std::size_t i = 0; i < problem.size(); ++i) {
      Buffer& buffer = problem[i];
      buffer.lifetime.begin += random() % 3;  // no two rounds are alike
      buffer.lifetime.end += 3 + random() % 3;
      buffer.size += random() % 4;
      const auto number = static_cast<std::uint32_t>(i % body.size());
      said.push_back(random() % 20 == 0 ? kNoLoop
                     : round % 3 == 0   ? static_cast<std::uint32_t>(random() % 3)
                                        : number);
    }
    CAPTURE(round);
    found += check_turns(problem, said, 8, round_seed(round));
    SearchOptions options;
    options.work_limit = 5000;
    options.loops = said;
    CHECK_FALSE(quick_check(problem, plan_auto(problem, options).plan).has_value());
  }
  CHECK(found > count / 3);
}

TEST_CASE("a ring takes as long for many rounds as for few, and ends as low") {
  std::array<Size, 2> arenas{};
  std::array<std::uint64_t, 2> work{};
  for (std::size_t k = 0; k < 2; ++k) {
    const Problem problem = line_buffers(k == 0 ? 100 : 3000);
    const Sections sections = find_sections(problem);
    LoopSearch search(problem, sections, {}, 1);
    REQUIRE(search.worthwhile());
    for (int turn = 0; turn < 10; ++turn) {
      std::uint64_t spent = 0;
      const bool unrolled = !search.step(sections.max_load(), {}, spent).empty();
      work[k] += spent - (unrolled ? problem.size() : 0);
    }
    arenas[k] = search.arena();
    CHECK(static_cast<double>(arenas[k]) < 1.1 * static_cast<double>(sections.max_load()));
  }
  CHECK(work[1] < 3 * work[0]);
  CHECK(static_cast<double>(arenas[1]) < 1.05 * static_cast<double>(arenas[0]));
}

TEST_CASE("auto plans 24,000 line buffers as a ring") {
  const Problem problem = line_buffers(3000);
  SearchOptions options;
  options.work_limit = 2'000'000;
  const SearchResult found = plan_auto(problem, options);
  CHECK_FALSE(quick_check(problem, found.plan).has_value());
  CHECK(static_cast<double>(found.plan.arena_size) < 1.06 * static_cast<double>(load(problem)));
}

TEST_CASE("rounds that somebody names reach the search, and nothing else changes") {
  const CsvProblem csv = parse_csv(
      "id,lower,upper,size,loop\na0,0,2,4,a\na1,2,4,3,a\na2,4,6,4,a\nb,0,6,2,\na3,6,8,4,a\n", "loop.csv");
  CHECK(csv.constraints.loops == std::vector<std::uint32_t>{0, 0, 0, kNoLoop, 0});
  const ConstrainedProblem problem = to_constrained(csv, {});
  CHECK(said(problem.constraints) == std::vector<std::string>{"loop"});
  REQUIRE(reduce_to_plain(problem).has_value());
  const ConstrainedResult found = plan_constrained(problem, ConstrainedPlanner::kAuto);
  CHECK(found.optimal);
  CHECK(found.plan.arena_sizes == std::vector<Size>{6});
}

}  // namespace memoir
