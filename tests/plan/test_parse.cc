// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/plan/index/fit_index.h"
#include "memoir/plan/search/full/parse.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

Bundles read(const Problem& problem, const ParseOptions& options = {}) {
  std::uint64_t work = 0;
  const Sections sections = find_sections(problem);
  return parse(problem, sections, find_grid(problem), options, {}, work);
}

// What is planned tied up is a plan.
void check_untied(const Problem& problem, const Bundles& bundles) {
  const Sections sections = find_sections(bundles.problem);
  const std::vector<Offset> offsets =
      fit_in_order(bundles.problem, sections, make_order(bundles.problem, sections, "W"));
  const Plan plan{bundles.untie(offsets), arena_size(bundles.problem, offsets)};
  CHECK_FALSE(check(problem, plan).has_value());
}

// A rectangle cut in two again and again, large parts more often than small ones.
Problem cut(std::size_t count, Size unit, std::mt19937_64& random) {
  Problem parts{{{0, count / 2}, 100'000 * unit, 1}};
  while (parts.size() < count) {
    const auto area = [](const Buffer& part) {
      return static_cast<double>(part.size) * static_cast<double>(part.lifetime.end - part.lifetime.begin);
    };
    const std::size_t a = random() % parts.size(), b = random() % parts.size();
    Buffer& one = parts[area(parts[a]) < area(parts[b]) ? b : a];
    Buffer other = one;
    const Tick length = one.lifetime.end - one.lifetime.begin;
    if (length > 1 && random() % 2 == 0) {
      one.lifetime.end = other.lifetime.begin = one.lifetime.begin + 1 + random() % (length - 1);
    } else if (one.size > unit) {
      one.size = unit * (1 + random() % (one.size / unit - 1));
      other.size -= one.size;
    } else {
      continue;
    }
    parts.push_back(other);
  }
  std::shuffle(parts.begin(), parts.end(), random);
  return parts;
}

}  // namespace

TEST_CASE("a pinwheel of five, in which no two can be joined alone, is read as one") {
  // 1 and 2 share the boundary at 7, 4 and c and 3 that at 3.
  const Problem problem{
      {{0, 7}, 1'009, 1}, {{7, 10}, 3'013, 1}, {{3, 10}, 1'501, 1}, {{0, 3}, 3'505, 1}, {{3, 7}, 2'004, 1}};
  const Bundles bundles = read(problem);
  REQUIRE(bundles.problem.size() == 1);
  CHECK(bundles.problem[0].size == load(problem));
  CHECK_FALSE(check(problem, {bundles.untie({0}), load(problem)}).has_value());
}

TEST_CASE("what is read is a restriction: every plan of it is one of the problem") {
  std::mt19937_64 random(7);
  for (int round = 0; round < rounds(400); ++round) {
    ParseOptions options;
    options.surest = round % 3 == 0 ? -1 : 5;
    options.noise = round % 2;
    options.seed = static_cast<std::uint64_t>(round);
    const Problem problem = random_problem(random, 1 + random() % 30, 1 + random() % 15, 1 + random() % 9);
    CAPTURE(round);
    check_untied(problem, read(problem, options));
  }
}

TEST_CASE("rectangles cut in two again and again are mostly put together again, with parts left out too") {
  std::mt19937_64 random(8);
  std::size_t left = 0, before = 0;
  for (int round = 0; round < rounds(12); ++round) {
    Problem problem = cut(300, 64, random);
    if (round % 3 == 2) problem.resize(285);
    const Bundles bundles = read(problem);
    CHECK(load(bundles.problem) >= load(problem));
    check_untied(problem, bundles);
    left += bundles.problem.size();
    before += problem.size();
  }
  CHECK(left < before / 4);
}

}  // namespace memoir
