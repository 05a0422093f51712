// SPDX-License-Identifier: Apache-2.0
//
// What must hold for the search on problems that nobody has seen: the seeds make new ones.
#include <time.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "doctest/doctest.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/search/exact/canonical.h"
#include "memoir/plan/search/exact/decompose.h"
#include "memoir/plan/search/exact/portfolio.h"
#include "memoir/plan/search/full/squeeze.h"
#include "memoir/plan/simple/best_fit.h"
#include "memoir/plan/simple/hill_climb.h"
#include "memoir/plan/simple/planners.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

// A rectangle of `ticks` and `height`, cut in two again and again: its plans of the height of the rectangle
// have no gap. `out` in a hundred are left out.
Problem cut_rectangle(std::size_t count, Tick ticks, Size height, std::uint64_t out,
                      std::mt19937_64& random) {
  Problem problem{{{0, ticks}, height, 1}};
  while (problem.size() < count) {
    const std::size_t k = random() % problem.size();
    Buffer& buffer = problem[k];
    const Tick length = buffer.lifetime.end - buffer.lifetime.begin;
    Buffer rest = buffer;
    if (random() % 2 == 0 && length > 1) {
      const Tick at = buffer.lifetime.begin + 1 + random() % (length - 1);
      buffer.lifetime.end = rest.lifetime.begin = at;
    } else if (buffer.size > 1) {
      buffer.size = 1 + random() % (buffer.size - 1);
      rest.size -= buffer.size;
    } else {
      continue;
    }
    problem.push_back(rest);
  }
  std::shuffle(problem.begin(), problem.end(), random);
  std::erase_if(problem, [&](const Buffer&) { return random() % 100 < out; });
  return problem;
}

// The same problem, told otherwise.
Problem retold(const Problem& problem, std::mt19937_64& random, Size factor) {
  std::set<Tick> ticks;
  for (const Buffer& buffer : problem) ticks.insert({buffer.lifetime.begin, buffer.lifetime.end});
  std::vector<Tick> from(ticks.begin(), ticks.end()), to(from.size());
  Tick now = random() % 100;
  for (Tick& tick : to) tick = now += 1 + random() % (random() % 4 == 0 ? 1000 : 5);
  const bool backwards = random() % 2 == 0;
  const auto moved = [&](Tick tick) {
    const Tick at =
        to[static_cast<std::size_t>(std::lower_bound(from.begin(), from.end(), tick) - from.begin())];
    return backwards ? to.back() - at : at;
  };
  Problem out;
  for (const Buffer& buffer : problem) {
    Lifetime lifetime{moved(buffer.lifetime.begin), moved(buffer.lifetime.end)};
    if (backwards) std::swap(lifetime.begin, lifetime.end);
    out.push_back({lifetime, buffer.size * factor, buffer.alignment * factor});
  }
  std::shuffle(out.begin(), out.end(), random);
  return out;
}

Problem one_of_a_kind(int round, std::mt19937_64& random) {
  switch (round % 3) {
    case 0:
      return random_problem(random, 5 + random() % 60, 2 + random() % 40, 1 + random() % 1000, {1, 1, 4});
    case 1:
      return cut_rectangle(10 + random() % 60, 5 + random() % 30, 1000, 0, random);
    default:
      return cut_rectangle(10 + random() % 90, 5 + random() % 30, 1 << 16, 5, random);
  }
}

}  // namespace

TEST_CASE("told otherwise, a problem has the same canonical form") {
  std::mt19937_64 random(51);
  for (int round = 0; round < rounds(200); ++round) {
    const Problem problem = one_of_a_kind(round, random);
    const Problem other = retold(problem, random, 1);
    const auto all = [](const Problem& of) {
      std::vector<std::uint32_t> buffers(of.size());
      std::iota(buffers.begin(), buffers.end(), 0u);
      std::stable_sort(buffers.begin(), buffers.end(),
                       [&](auto a, auto b) { return of[a].lifetime.begin < of[b].lifetime.begin; });
      return buffers;
    };
    const Canonical one = canonical(problem, all(problem)), two = canonical(other, all(other));
    CAPTURE(round);
    CHECK(one.problem == two.problem);
    for (std::size_t k = 0; k < one.buffers.size(); ++k) {
      CHECK(one.problem[k].size == problem[one.buffers[k]].size);
      CHECK(two.problem[k].size == other[two.buffers[k]].size);
    }
    // Its sections are those of the problem, at the ticks that it names.
    const Sections sections = find_sections(one.problem);
    REQUIRE(one.ticks.size() == sections.count);
    for (std::uint32_t s = 0; s < sections.count; ++s) {
      Size live = 0;
      for (const Buffer& buffer : problem) {
        if (buffer.lifetime.begin <= one.ticks[s] && one.ticks[s] < buffer.lifetime.end) live += buffer.size;
      }
      CHECK(live == sections.load[s]);
    }
  }
}

TEST_CASE(
    "stretching, reversing, scaling and permuting a problem changes nothing about what the search finds") {
  std::mt19937_64 random(52);
  for (int round = 0; round < rounds(30); ++round) {
    const Problem problem = one_of_a_kind(round, random);
    SearchOptions options;
    options.work_limit = 20'000;
    options.seed = static_cast<std::uint64_t>(round);
    const Size factor = 1 + random() % 7;
    const SearchResult one = plan_exact(problem, options);
    const Problem other = retold(problem, random, factor);
    const SearchResult two = plan_exact(other, options);
    CAPTURE(round);
    CHECK(two.plan.arena_size == one.plan.arena_size * factor);
    CHECK(two.lower_bound == one.lower_bound * factor);
    CHECK(two.work == one.work);
    CHECK_FALSE(check(other, two.plan));
  }
}

TEST_CASE("minimalloc's instances fit their capacity however time is stretched") {
  std::mt19937_64 random(53);
  for (const char* name : {"A", "C", "D", "E", "G", "J", "K"}) {
    const Problem problem = challenge("minimalloc/" + std::string(name) + ".1048576.csv");
    for (int copy = 0; copy < 2; ++copy) {
      SearchOptions options;
      options.capacity = 1'048'576;
      options.work_limit = 300'000;
      options.seed = random();
      const Problem stretched = retold(problem, random, 1);
      const SearchResult result = plan_auto(stretched, options);
      CAPTURE(name);
      CHECK(result.fits(options));
      CHECK_FALSE(check(stretched, result.plan));
    }
  }
}

TEST_CASE("at any deadline auto is never worse than a cheap planner") {
  std::mt19937_64 random(54);
  for (int round = 0; round < rounds(60); ++round) {
    const Problem problem =
        round % 10 == 9 ? cut_rectangle(600, 200, 1 << 20, 0, random) : one_of_a_kind(round, random);
    Size best = ~Size{0};
    for (const Planner* planner : cheap_planners()) best = std::min(best, planner->run(problem).arena_size);
    for (const double deadline : {0.0, 0.001, 0.01}) {
      SearchOptions options;
      options.deadline_s = deadline;
      const SearchResult result = plan_auto(problem, options);
      CAPTURE(round);
      CAPTURE(deadline);
      CHECK(result.plan.arena_size <= best);
      CHECK_FALSE(check(problem, result.plan));
      CHECK(result.lower_bound <= result.plan.arena_size);
    }
  }
}

TEST_CASE("with the same work auto is never worse than exact") {
  std::mt19937_64 random(55);
  for (int round = 0; round < rounds(40); ++round) {
    const Problem problem = one_of_a_kind(round, random);
    SearchOptions options;
    options.work_limit = 100 << (round % 8);
    options.seed = static_cast<std::uint64_t>(round);
    const SearchResult exact = plan_exact(problem, options), found = plan_auto(problem, options);
    CAPTURE(round);
    CHECK(found.plan.arena_size <= exact.plan.arena_size);
    CHECK(found.lower_bound >= exact.lower_bound);
    CHECK(found.optimal == (found.plan.arena_size == found.lower_bound));
    CHECK_FALSE(check(problem, found.plan));
  }
}

TEST_CASE("with less work than hill_climb auto is at most 1 % worse") {
  std::mt19937_64 random(64);
  for (int round = 0; round < rounds(30); ++round) {
    const Problem problem =
        round % 3 == 0 ? cut_rectangle(120, 40, 1 << 20, 0, random) : one_of_a_kind(round, random);
    SearchOptions options;
    options.work_limit =
        500 * problem.size();  // a quarter of the fits that its 2,000 exchanges make at least
    options.seed = static_cast<std::uint64_t>(round);
    const Size climbed = hill_climb(problem).arena_size;
    CAPTURE(round);
    CHECK(static_cast<double>(plan_auto(problem, options).plan.arena_size) <=
          1.01 * static_cast<double>(climbed));
  }
}

TEST_CASE("a limit of work holds in every method, on problems that are full and that are not") {
  std::mt19937_64 random(60);
  for (const std::size_t count : {300, 1200}) {
    for (const Problem& problem :
         {cut_rectangle(count, count / 3, 1 << 20, 0, random),
          cut_rectangle(count, count / 3, 1 << 20, 5, random),
          random_problem(random, count, count, 1 << 16, {1, 64}), random_problem(random, count, 40, 999)}) {
      for (const std::uint64_t limit : {100, 10'000}) {
        SearchOptions options;
        options.work_limit = limit;
        const SearchResult result = plan_auto(problem, options);
        CAPTURE(count);
        CAPTURE(limit);
        // plan_exact() has as much; the cheap planners and the first plans of all parts place every buffer.
        CHECK(result.work <= 2 * limit + 40 * problem.size());
        CHECK_FALSE(quick_check(problem, result.plan));
      }
    }
  }
}

TEST_CASE("no method goes on for long after the deadline") {
  std::mt19937_64 random(61);
  const auto own_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  for (const std::uint64_t out : {0, 5}) {
    const Problem problem = cut_rectangle(3000, 1000, 1 << 20, out, random);
    const auto spent = [&](double deadline) {
      SearchOptions options;
      options.threads = 1;
      options.deadline_s = deadline;
      const double before = own_seconds();
      const SearchResult result = plan_auto(problem, options);
      CHECK_FALSE(quick_check(problem, result.plan));
      return own_seconds() - before;
    };
    const double always = spent(0);  // what is done whatever the deadline
    // Processor time, of which other programs take nothing. Half a minute is what a loop took that looked at
    // no clock.
    for (const double deadline : {0.02, 0.1, 0.4}) CHECK(spent(deadline) <= deadline + 2 * always + 2);
  }
}

TEST_CASE("what is full nearly everywhere is tied up, and comes closer to its load") {
  std::mt19937_64 random(62);
  for (int round = 0; round < rounds(3); ++round) {
    const Problem problem = cut_rectangle(400, 130, 1 << 20, 0, random);
    SearchOptions options;
    options.work_limit = 60'000;
    options.seed = static_cast<std::uint64_t>(round);
    const SearchResult result = plan_auto(problem, options);
    CAPTURE(round);
    CHECK(static_cast<double>(result.plan.arena_size) <= 1.1 * static_cast<double>(load(problem)));
    CHECK_FALSE(check(problem, result.plan));
  }
}

TEST_CASE("a tolerance ends the search once a plan is that close to the bound") {
  std::mt19937_64 random(63);
  for (int round = 0; round < rounds(10); ++round) {
    const Problem problem = cut_rectangle(200, 60, 1 << 20, 0, random);
    SearchOptions options;
    options.work_limit = 200'000;
    const SearchResult closest = plan_auto(problem, options);
    options.tolerance.share = 0.3;
    const SearchResult close = plan_auto(problem, options);
    CAPTURE(round);
    CHECK_FALSE(check(problem, close.plan));
    CHECK(close.plan.arena_size <= options.tolerance.above(close.lower_bound));
    CHECK(close.optimal == (close.plan.arena_size == close.lower_bound));
    CHECK(close.lower_bound <= closest.plan.arena_size);
    CHECK(close.work <= closest.work);
    // In bytes the same; with a capacity that alone counts.
    options.tolerance = {options.tolerance.above(closest.lower_bound) - closest.lower_bound, 0};
    CHECK(plan_auto(problem, options).plan == close.plan);
    options.capacity = closest.plan.arena_size;
    CHECK(plan_auto(problem, options).plan.arena_size <= closest.plan.arena_size);
  }
  CHECK(Tolerance{}.above(5) == 5);
  CHECK(Tolerance{3, 0.5}.above(100) == 150);
  CHECK(Tolerance{3, 0.5}.above(4) == 7);
  CHECK(Tolerance{~Size{0}, 0}.above(9) == ~Size{0});
  CHECK(Tolerance{0, 1e300}.above(9) > (Size{1} << 62));
}

TEST_CASE("what ends soon starts no thread") {
  std::mt19937_64 random(56);
  SearchOptions options;
  options.threads = 8;
  options.deadline_s = kNoDeadline;
  std::set<std::thread::id> callers;
  options.improved = [&](Size, double) { callers.insert(std::this_thread::get_id()); };
  for (int round = 0; round < 50; ++round) plan_auto(random_problem(random, 5, 8, 9), options);
  CHECK(callers == std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_CASE("a search that got no processor says so, and one that ended does not") {
  std::mt19937_64 random(57);
  SearchOptions options;
  options.deadline_s = kNoDeadline;
  const SearchResult ended = plan_auto(random_problem(random, 6, 8, 9), options);
  CHECK(ended.optimal);
  CHECK_FALSE(ended.starved);
  options.deadline_s = 0.05;
  const SearchResult stopped = plan_auto(cut_rectangle(300, 90, 1 << 20, 0, random), options);
  CHECK(stopped.starved == (!stopped.optimal && stopped.cpu_seconds < 0.7 * stopped.seconds));
}

TEST_CASE("Luby's sequence") {
  std::vector<std::uint64_t> begin;
  for (std::uint64_t k = 1; k <= 15; ++k) begin.push_back(luby(k));
  CHECK(begin == std::vector<std::uint64_t>{1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8});
}

TEST_CASE("the portfolio repeats itself for a seed, and ties only where that makes away with buffers") {
  Portfolio one(100, 60, 7), same(100, 60, 7), untied(100, 100, 7);
  const std::vector<Attempt> attempts = one.next(60), again = same.next(60);
  bool tied = false;
  for (std::size_t k = 0; k < attempts.size(); ++k) {
    CHECK(attempts[k].nodes == again[k].nodes);
    CHECK(attempts[k].ranking.seed == again[k].ranking.seed);
    CHECK(attempts[k].ranking.warp >= 0.1);
    CHECK(attempts[k].ranking.warp <= 0.5);
    tied |= attempts[k].keep > 0;
  }
  CHECK(tied);
  for (const Attempt& attempt : untied.opening()) CHECK(attempt.keep == 0);
  for (const Attempt& attempt : untied.next(60)) CHECK(attempt.keep == 0);
}

TEST_CASE("squeezed into less room, a plan is one") {
  std::mt19937_64 random(58);
  int smaller = 0;
  for (int round = 0; round < rounds(20); ++round) {
    const Problem problem = cut_rectangle(120, 40, 1 << 16, 0, random);
    const Sections sections = find_sections(problem);
    const Plan begun = best_fit(problem);
    const Size height = begun.arena_size - (begun.arena_size - sections.max_load()) / 4;
    Squeeze squeeze(problem, sections, find_grid(problem), static_cast<std::uint64_t>(round));
    squeeze.start(begun.offsets, height);
    std::uint64_t work = 0;
    const bool fits = squeeze.run(20'000, {}, work);
    CHECK(work <= 20'000);
    const Plan plan{squeeze.offsets(), height};
    CHECK(fits == !check(problem, plan));
    smaller += fits;
  }
  CHECK(smaller >= rounds(20) / 2);
}

TEST_CASE("full problems come closer to their load than any cheap planner brings them") {
  std::mt19937_64 random(59);
  for (const std::size_t count : {200, 700}) {
    const Problem problem = cut_rectangle(count, count / 3, 1 << 20, 0, random);
    Size best = ~Size{0};
    for (const Planner* planner : cheap_planners()) best = std::min(best, planner->run(problem).arena_size);
    SearchOptions options;
    options.work_limit = 400 * count;
    const SearchResult result = plan_auto(problem, options);
    CAPTURE(count);
    CHECK(2 * (result.plan.arena_size - load(problem)) <= best - load(problem) + (best - load(problem)) / 2);
    CHECK_FALSE(check(problem, result.plan));
  }
}

}  // namespace memoir
