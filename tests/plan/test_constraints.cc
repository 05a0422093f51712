// SPDX-License-Identifier: Apache-2.0
//
// What each constraint means, on problems small enough to see; and what is refused.
#include <algorithm>
#include <random>

#include "constraint_problems.h"
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/constrained/reuse.h"
#include "memoir/plan/files/csv.h"
#include "support/rounds.h"

namespace memoir {
namespace {

ConstrainedResult exactly(const ConstrainedProblem& problem) {
  const ConstrainedResult result = plan_constrained(problem, ConstrainedPlanner::kExact);
  CHECK(result.optimal);
  return result;
}

const Problem kThree{{{0, 4}, 4, 1}, {{0, 4}, 4, 1}, {{0, 4}, 4, 1}};

}  // namespace

TEST_CASE("a gap is free for others, a window only above and below") {
  ConstrainedProblem problem{{{{0, 6}, 4, 1}, {{2, 4}, 2, 1}}, {}, {}, {}};
  CHECK(exactly(problem).plan.arena_sizes[0] == 6);
  problem.constraints.gaps = {{{{2, 4}, std::nullopt}}, {}};
  CHECK(exactly(problem).plan.arena_sizes[0] == 4);
  problem.constraints.gaps = {{{{2, 4}, Range{1, 2}}}, {}};  // bytes 1 and 2 of a stay
  CHECK(exactly(problem).plan.arena_sizes[0] == 5);
  problem.constraints.gaps = {{{{2, 4}, Range{2, 2}}}, {}};
  const ConstrainedResult result = exactly(problem);
  CHECK(result.plan.offsets == std::vector<Offset>{0, 0});
  CHECK(result.load == 4);
}

TEST_CASE("check() names the rule that is broken") {
  ConstrainedProblem problem{kThree, {}, {}, {}};
  Constraints& said = problem.constraints;
  said.arenas = {{"sram", 8, 1, {{20, 4}}}, {"dram", kNoLimit, 9, {}}};
  said.allowed = {3, 3, 1};
  said.fixed = {kNoOffset, 4, kNoOffset};
  said.banks = {2, 8};
  const auto what = [&](std::vector<Offset> offsets, std::vector<std::uint32_t> arenas) {
    const auto violation = check(problem, {std::move(offsets), std::move(arenas), {40, 40}});
    return violation ? violation->what : "";
  };
  CHECK(what({0, 4, 8}, {0, 0, 0}) == "");
  CHECK(what({0, 4, 4}, {0, 1, 0}) == "");
  CHECK(what({0, 4, 8}, {0, 0, 1}) == "it may not be in that arena");
  CHECK(what({0, 4, 8}, {0, 2, 0}) == "it is in no arena");
  CHECK(what({0, 8, 12}, {0, 0, 0}) == "it is not at its fixed offset");
  CHECK(what({0, 4, 18}, {0, 0, 0}) == "it touches a forbidden range");
  CHECK(what({37, 4, 8}, {0, 0, 0}) == "it ends outside the arena");
  CHECK(what({2, 4, 8}, {0, 0, 0}) == "the two live at the same time and overlap");
  said.apart = {{0, 1}};
  CHECK(what({0, 4, 8}, {0, 0, 0}) == "they share a bank");
  CHECK(what({0, 4, 8}, {1, 0, 0}) == "");
  CHECK(what({8, 4, 0}, {0, 0, 0}) == "");
  said.apart.clear();
  said.conflicts = {{0, 2}};
  problem.buffers[2].lifetime = {9, 10};
  CHECK(what({0, 4, 0}, {0, 0, 0}) == "the two conflict and overlap");
  said.conflicts.clear();
  said.alias = {kNoBuffer, kNoBuffer, 0};
  CHECK(what({0, 4, 8}, {0, 0, 0}) == "they are aliases and do not share");
  CHECK(what({0, 4, 0}, {0, 0, 0}) == "");
}

TEST_CASE("in place: at one offset or not at all, and only over an input that dies there") {
  ConstrainedProblem problem{{{{0, 3}, 4, 1}, {{2, 5}, 4, 1}}, {}, {}, {}};
  problem.constraints.in_place = {{1, 0}};
  CHECK(exactly(problem).plan.arena_sizes[0] == 4);
  CHECK_FALSE(check(problem, {{0, 0}, {0, 0}, {8}}));
  CHECK(check(problem, {{0, 2}, {0, 0}, {8}}));  // shifted
  problem.buffers[0].lifetime.end = 4;           // it lives on for a tick
  CHECK(exactly(problem).plan.arena_sizes[0] == 8);
}

TEST_CASE("several arenas: the weight that a byte has decides what is spilled") {
  ConstrainedProblem problem{kThree, {}, {}, {}};
  problem.constraints.arenas = {{"sram", 8, 1, {}}, {"dram", kNoLimit, 10, {}}};
  problem.constraints.weights = {5, 7, 6};
  const ConstrainedResult result = exactly(problem);
  CHECK(result.plan.arenas == std::vector<std::uint32_t>{1, 0, 0});
  CHECK(result.objective.cost == 5 * 10 + 7 + 6);
  problem.constraints.arenas[1].capacity = 3;
  CHECK(plan_constrained(problem, ConstrainedPlanner::kAuto).proven_infeasible);
}

TEST_CASE("replanning: few moves first, or at most so many and a small arena") {
  ConstrainedProblem problem{kThree, {}, {}, {}};
  problem.constraints.old = {{0, 0}, {10, 0}, {20, 0}};
  CHECK(exactly(problem).objective == Objective{0, 0, 24});
  problem.constraints.moves = 1;
  CHECK(exactly(problem).plan.arena_sizes[0] == 14);
  problem.constraints.moves = 3;
  CHECK(exactly(problem).plan.arena_sizes[0] == 12);
  problem.constraints.moves.reset();
  SearchOptions options;
  options.capacity = 14;
  const ConstrainedResult fitting = plan_constrained(problem, ConstrainedPlanner::kExact, options);
  CHECK(fitting.fits);
  CHECK(count_moves(problem, fitting.plan) == 1);
  options.capacity = 11;
  CHECK(plan_constrained(problem, ConstrainedPlanner::kExact, options).proven_infeasible);
}

TEST_CASE("locality: the bytes freed last, and no arena grows") {
  ConstrainedProblem problem{{{{0, 1}, 8, 1}, {{1, 3}, 4, 1}, {{1, 5}, 4, 1}, {{5, 7}, 4, 1}}, {}, {}, {}};
  const ConstrainedResult cold = exactly(problem);
  problem.constraints.locality = true;
  const ConstrainedResult warm = exactly(problem);
  CHECK(warm.plan.arena_sizes == cold.plan.arena_sizes);
  CHECK(warm.plan.offsets[3] == warm.plan.offsets[2]);  // freed at 5, the other at 3
  CHECK(reuse_of(problem, warm.plan).age == 0);
  CHECK(reuse_of(problem, warm.plan).cold_bytes == 8);
}

TEST_CASE("locality and hints never make a plan worse") {
  std::mt19937_64 random(3);
  for (int round = 0; round < rounds(200); ++round) {
    ConstrainedProblem problem = random_constrained(random, 8, kGapsOnly | kInPlace | kAlignments);
    const ConstrainedResult before = plan_constrained(problem, ConstrainedPlanner::kFirstFit);
    for (std::size_t i = 0; i < problem.buffers.size(); ++i)
      problem.constraints.hints.push_back(random() % 4 * problem.buffers[i].alignment);
    const ConstrainedResult hinted = plan_constrained(problem, ConstrainedPlanner::kFirstFit);
    CHECK(hinted.objective <= before.objective);
    CHECK(count_hints(problem, hinted.plan) >= count_hints(problem, before.plan));
    problem.constraints.hints.clear();
    problem.constraints.locality = true;
    const ConstrainedResult warm = plan_constrained(problem, ConstrainedPlanner::kFirstFit);
    CHECK(warm.objective <= before.objective);
  }
}

TEST_CASE("aliases whose times touch make a plain problem") {
  ConstrainedProblem problem{{{{0, 2}, 4, 2}, {{2, 5}, 4, 3}, {{1, 3}, 2, 1}}, {}, {}, {}};
  problem.constraints.alias = {kNoBuffer, 0, kNoBuffer};
  const auto reduced = reduce_to_plain(problem);
  REQUIRE(reduced);
  CHECK(reduced->problem == Problem{{{0, 5}, 4, 6}, {{1, 3}, 2, 1}});
  CHECK(reduced->body_of == std::vector<std::uint32_t>{0, 0, 1});
  problem.buffers[1].lifetime.begin = 3;  // free in [2, 3)
  CHECK_FALSE(reduce_to_plain(problem));
}

TEST_CASE("an empty problem has a plan of 0 bytes, whatever is said") {
  ConstrainedProblem problem;
  problem.constraints.arenas = {{"sram", 8, 1, {{0, 4}}}, {"dram", kNoLimit, 9, {}}};
  problem.constraints.locality = true;
  for (const auto planner :
       {ConstrainedPlanner::kAuto, ConstrainedPlanner::kExact, ConstrainedPlanner::kFirstFit}) {
    const ConstrainedResult result = plan_constrained(problem, planner);
    CHECK(result.found);
    CHECK(result.optimal);
    CHECK(result.plan.arena_sizes == std::vector<Size>{0, 0});
  }
}

TEST_CASE("with a work limit the same seed gives the same plan") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 20; ++round) {
    const ConstrainedProblem problem =
        random_constrained(random, 30, kWindows | kInPlace | kForbidden | kAlignments);
    SearchOptions options;
    options.work_limit = 3000;
    options.seed = 5;
    const ConstrainedResult once = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    const ConstrainedResult again = plan_constrained(problem, ConstrainedPlanner::kAuto, options);
    CHECK(again.plan == once.plan);
  }
}

TEST_CASE("ten thousand buffers, every feature, by first fit") {
  std::mt19937_64 random(5);
  for (const unsigned features : {0u | kGapsOnly | kWindows, 0u | kInPlace, 0u | kArenas,
                                  0u | kForbidden | kHints, 0u | kReplan, 0u | kLocality, 0u | kGraph,
                                  0u | kRows | kEmpty, kEveryFeature & ~(kFixed | kGraph | kEdges | kRows)}) {
    ConstrainedProblem problem =
        random_constrained(random, (features & (kGraph | kAlias)) ? 1000 : 10'000, features);
    for (Buffer& buffer : problem.buffers) {  // spread over time
      const Tick shift = random() % 2000 * 16;
      if (!problem.constraints.gaps.empty()) {
        for (Gap& gap : problem.constraints.gaps[static_cast<std::size_t>(&buffer - problem.buffers.data())])
          gap.lifetime.begin += shift, gap.lifetime.end += shift;
      }
      buffer.lifetime.begin += shift, buffer.lifetime.end += shift;
    }
    INFO("features ", features);
    const ConstrainedResult result = plan_constrained(problem, ConstrainedPlanner::kFirstFit);
    CHECK(result.found);
    CHECK_FALSE(check(problem, result.plan));
    CHECK(result.objective >= result.lower_bound);
  }
}

TEST_CASE("what contradicts itself is refused, by row") {
  struct Case {
    const char* text;
    const char* error;
  };
  const Case cases[] = {
      {"id,lower,upper,size,alignment,fixed\na,0,4,4,8,4\n",
       "p.csv:2: has the fixed offset 4, which is not a multiple"},
      {"id,lower,upper,size,fixed\na,0,4,4,0\nb,3,5,4,2\n",
       "p.csv:2: and p.csv:3 are fixed where they cannot be together"},
      {"id,lower,upper,size,fixed\na,0,4,4,9\n",
       "p.csv:2: has the fixed bytes 9:13, which touch the forbidden range 12:16"},
      {"id,lower,upper,size,fixed\na,0,4,4,2305843009213693952\n",
       "p.csv:2: has a fixed offset of 2^60 or more"},
      {"id,lower,upper,size,alias\na,0,4,4,\nb,4,5,5,a\n",
       "p.csv:3: is an alias of another size: 5 bytes, but p.csv:2 has 4"},
      {"id,lower,upper,size,alias\na,0,4,4,b\nb,4,5,4,a\n", "p.csv:2: is an alias of itself"},
      {"id,lower,upper,size,alias\na,0,4,4,a\n", "p.csv:2: is an alias of itself"},
      {"id,lower,upper,size,alias,fixed\na,0,4,4,,0\nb,4,5,4,a,4\n",
       "p.csv:2: has another fixed offset than its alias"},
      {"id,lower,upper,size,apart\na,0,4,4,\nb,4,5,20,a\n",
       "p.csv:3: must not share a bank with p.csv:2, but they need 4 of the 3"},
      {"id,lower,upper,size,apart,alias\na,0,4,4,,\nb,4,5,4,a,a\n",
       "p.csv:3: must not share a bank with p.csv:2 and is its alias"},
      {"id,lower,upper,size,apart\na,0,4,4,a\n", "p.csv:2: is in apart with itself"},
      {"id,lower,upper,size,size_low\na,0,4,4,5\n",
       "p.csv:2: has a smallest size of 5 bytes, which is not within 1 and its size of 4"},
      {"id,lower,upper,size,size_low\na,0,4,4,0\n", "p.csv:2: has a smallest size of 0 bytes"},
      {"id,lower,upper,size,hint\na,0,4,600000000000000000,\nb,0,4,600000000000000000,4\n",
       "p.csv:3: of 600000000000000000 bytes brings the sum of all sizes to 2^60"},
      {"id,lower,upper,size,alias\na,0,4,4,c\n", "p.csv:2: alias is 'c', which is not the ID of a buffer"},
      {"id,lower,upper,size,in_place\na,0,4,4,\nb,0,4,4,a c\n",
       "p.csv:3: in_place is 'c', which is not the ID of a buffer"},
      {"id,lower,upper,size,arenas\na,0,4,4,flash\n", "p.csv:2: arenas names 'flash', which is not an arena"},
      {"id,size,gaps\na,4,1-2\n", "p.csv:2: gap '1-2' leaves the lifetime"},
      {"id,size,gaps\na,4,0-1\n", "p.csv:2: has gaps, but there are no times"},
      {"id,lower,size\na,0,4\n", "p.csv:1: no column 'upper'"},
  };
  for (const Case& bad : cases) {
    INFO(bad.text);
    const auto read = [&] {
      ConstrainedProblem problem =
          to_constrained(parse_csv(bad.text, "p.csv"), {{"sram", kNoLimit, 0, {{12, 4}}}});
      problem.constraints.banks = {3, 8};
      validate(problem);
    };
    CHECK_THROWS_WITH_AS(read(), doctest::Contains(bad.error), Error);
  }
  ConstrainedProblem costly{kThree, {}, {}, {}};
  costly.constraints.arenas = {{"sram", 8, Size{1} << 61, {}}, {"dram", 8, 0, {}}};
  CHECK_THROWS_WITH_AS(validate(costly), doctest::Contains("brings the sum of weight x cost to 2^62"), Error);
  costly.constraints.arenas[1].name = "sram";
  CHECK_THROWS_WITH_AS(validate(costly), doctest::Contains("two arenas are called 'sram'"), Error);
  ConstrainedProblem gaps{kThree, {}, {}, {}};
  gaps.constraints.gaps = {{{{1, 3}, std::nullopt}, {{2, 4}, std::nullopt}}, {}, {}};
  CHECK_THROWS_WITH_AS(validate(gaps), doctest::Contains("buffer 0 has the gap [2, 4), which overlaps"),
                       Error);
  gaps.constraints.gaps = {{{{1, 3}, Range{2, 3}}}, {}, {}};
  CHECK_THROWS_WITH_AS(validate(gaps), doctest::Contains("a window that is not within its size"), Error);
  gaps.constraints.gaps = {{}, {}};
  CHECK_THROWS_WITH_AS(validate(gaps), doctest::Contains("gaps has 2 elements for 3 buffers"), Error);
}

TEST_CASE("what a problem says as a whole stands before its columns") {
  const CsvProblem csv = parse_csv(
      "# arena sram=1KiB,cost=1\n\n#arena dram , cost=20\n# forbid sram:0:64\n# banks 8:4KiB\n# moves 2\n"
      "#locality\n# bandwidth "
      "64\nid,size,conflicts,old_offset,old_arena\nx,4,z,0,dram\ny,4,x,,\nz,4,,8,sram\n",
      "p.csv");
  const Constraints& said = csv.constraints;
  REQUIRE(said.arenas.size() == 2);
  CHECK(said.arenas[0].name == "sram");
  CHECK(said.arenas[0].capacity == kKiB);
  CHECK(said.arenas[0].forbidden == std::vector<Range>{{0, 64}});
  CHECK(said.arenas[1].name == "dram");
  CHECK(said.arenas[1].capacity == kNoLimit);
  CHECK(said.arenas[1].cost == 20);
  CHECK(said.banks == Banks{8, 4 * kKiB});
  CHECK(said.moves == 2);
  CHECK(said.locality);
  CHECK(csv.bandwidth == 64);
  CHECK(said.conflicts == std::vector<Constraints::Pair>{{0, 2}, {1, 0}});
  CHECK(said.old == std::vector<OldPlace>{{0, 1}, {}, {8, 0}});
  CHECK(to_constrained(csv).constraints.arenas.size() == 2);
  CHECK(parse_csv(write_csv(csv, Plan{{0, 4, 8}, 12}), "again").constraints.banks == said.banks);
  const auto refused = [&](const char* text, const char* error) {
    CHECK_THROWS_WITH_AS(parse_csv(text, "p.csv"), doctest::Contains(error), Error);
  };
  refused("# arena a\n", "p.csv: is empty");
  refused("# arena a\nid,size,conflicts\nx,4,w\n",
          "p.csv:3: conflicts is 'w', which is not the ID of a buffer");
  refused("id,size,conflicts\nx,4,x\n", "p.csv:2: conflicts with itself");
  refused("id,size\n# arena a\n", "p.csv:2: has 1 fields");
}

TEST_CASE("a row: one after another, whoever lives when") {
  // b lies right after a, c right after b; d fits over a, which is gone by then
  ConstrainedProblem problem{{{{0, 3}, 4, 1}, {{2, 6}, 2, 1}, {{4, 8}, 2, 1}, {{3, 9}, 4, 1}}, {}, {}, {}};
  problem.constraints.after = {kNoBuffer, 0, 1, kNoBuffer};
  const ConstrainedResult result = exactly(problem);
  CHECK(result.plan.offsets == std::vector<Offset>{0, 4, 6, 0});
  CHECK(result.plan.arena_sizes[0] == 8);
  CHECK(result.load == 8);
  CHECK_FALSE(check(problem, result.plan));
  const auto violation = check(problem, {{0, 5, 7, 0}, {0, 0, 0, 0}, {9}});
  REQUIRE(violation);
  CHECK(violation->what == "the one does not begin right after the other");
  CHECK(said(problem.constraints) == std::vector<std::string>{"after"});
}

TEST_CASE("a row begins where every member is aligned") {
  ConstrainedProblem problem{{{{0, 3}, 3, 1}, {{0, 3}, 4, 4}, {{0, 3}, 1, 6}}, {}, {}, {}};
  problem.constraints.after = {kNoBuffer, 0, 1};  // a + 3 = 0 (mod 4) and a + 7 = 0 (mod 6): a = 5
  const ConstrainedResult result = exactly(problem);
  CHECK(result.plan.offsets == std::vector<Offset>{5, 8, 12});
  problem.constraints.arenas = {{"", kNoLimit, 0, {{2, 2}, {12, 1}}}};  // over its lead, and in it
  CHECK(exactly(problem).plan.offsets == std::vector<Offset>{17, 20, 24});
  problem.constraints.fixed = {kNoOffset, 32, kNoOffset};
  CHECK(exactly(problem).plan.offsets == std::vector<Offset>{29, 32, 36});
}

TEST_CASE("a row that lives at one time is a plain buffer for every planner") {
  ConstrainedProblem problem{{{{0, 3}, 4, 1}, {{0, 3}, 2, 1}, {{2, 5}, 4, 1}}, {}, {}, {}};
  problem.constraints.after = {kNoBuffer, 0, kNoBuffer};
  const auto plain = reduce_to_plain(problem);
  REQUIRE(plain);
  CHECK(plain->problem == Problem{{{0, 3}, 6, 1}, {{2, 5}, 4, 1}});
  CHECK(plain->body_of == std::vector<std::uint32_t>{0, 0, 1});
  CHECK(plain->shift == std::vector<Size>{0, 4, 0});
}

TEST_CASE("rows that cannot be are refused, with both lines") {
  const auto why = [](const std::string& columns, const std::string& rows) {
    try {
      const ConstrainedProblem problem =
          to_constrained(parse_csv("id,lower,upper,size" + columns + "\n" + rows, "p.csv"));
      validate(problem);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK(why(",after", "a,0,2,4,\nb,0,2,4,a\nc,0,2,4,b\n") == "");
  CHECK(why(",after", "a,0,2,4,\nb,0,2,4,a\nc,0,2,4,a\n") ==
        "p.csv:4: and p.csv:3 both come right after p.csv:2");
  CHECK(why(",after", "a,0,2,4,b\nb,0,2,4,a\n") == "p.csv:2: comes after itself, through others");
  CHECK(why(",after", "a,0,2,4,a\n") == "p.csv:2: comes after itself, or after an alias of its own");
  CHECK(why(",after", "a,0,2,4,x\n") == "p.csv:2: after is 'x', which is not the ID of a buffer");
  CHECK(why(",after,alignment", "a,0,2,2,,2\nb,0,2,3,a,2\nc,0,2,3,b,2\n") ==
        "p.csv:4: has an alignment of 2, which it cannot have right after the others of its row");
  CHECK(why(",after,fixed", "a,0,2,4,,0\nb,0,2,4,a,8\n") ==
        "p.csv:2: has a fixed offset that does not go together with its row (after)");
  CHECK(why(",after,in_place", "a,0,2,4,,\nb,1,3,4,a,a\n") ==
        "p.csv:3: lies in a row (after) and is in in_place: it can only be in one of the two");
}

TEST_CASE("a pair in conflict and in place is refused, with both lines") {
  const CsvProblem csv = parse_csv("id,lower,upper,size,in_place\na,0,2,4,\nb,1,3,4,a\n", "p.csv");
  ConstrainedProblem problem = to_constrained(csv);
  problem.constraints.conflicts = {{0, 1}};
  CHECK_THROWS_WITH_AS(validate(problem),
                       "p.csv:3: may lie in place of p.csv:2 and conflicts with it: say one of the two",
                       Error);
}

TEST_CASE("buffers of 0 bytes take no place, whatever is said of them") {
  ConstrainedProblem problem{{{{0, 4}, 4, 1}, {{0, 4}, 0, 8}, {{0, 4}, 2, 1}, {{1, 2}, 0, 1}}, {}, {}, {}};
  problem.constraints.after = {kNoBuffer, 0, 1, kNoBuffer};
  problem.constraints.conflicts = {{0, 3}};
  const ConstrainedResult result = exactly(problem);
  CHECK(result.plan.offsets == std::vector<Offset>{0, 0, 4, 0});
  CHECK(result.plan.arena_sizes[0] == 6);
  problem.constraints.arenas = {{"dear", kNoLimit, 3, {}}, {"cheap", kNoLimit, 1, {}}};
  problem.constraints.weights = {1, 5, 1, 1};
  const ConstrainedResult several = exactly(problem);
  CHECK(several.plan.arenas == std::vector<std::uint32_t>{1, 1, 1, 1});
  CHECK(several.objective.cost == 8);
  CHECK(several.lower_bound.cost == 8);
}

}  // namespace memoir
