// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/csv.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/simple/planners.h"

namespace memoir {

TEST_CASE("columns in any order, with the optional ones") {
  const CsvProblem csv = parse_csv(
      "size,id,upper,lower,gaps,hint,alignment,offset\n"
      "4,b1,9,0,\"2-3 4-6@1:3\",-1,2,8\r\n"
      "\n"
      "5, \"a, b\" ,7,3,,12,,\n",
      "p.csv");
  CHECK(csv.problem == Problem{{{0, 9}, 4, 2}, {{3, 7}, 5, 1}});
  CHECK(csv.ids == std::vector<std::string>{"b1", "\"a, b\""});
  CHECK(csv.constraints.gaps[0] == std::vector<Gap>{{{2, 3}, std::nullopt}, {{4, 6}, Range{1, 2}}});
  CHECK(csv.constraints.gaps[1].empty());
  CHECK(csv.constraints.hints == std::vector<Offset>{kNoOffset, 12});
  CHECK(csv.offsets == std::vector<std::optional<Offset>>{8, std::nullopt});
  CHECK(csv.has_gaps());
}

TEST_CASE("a column called end is inclusive, and so are the gaps' ends") {
  const CsvProblem csv = parse_csv(
      "\xEF\xBB\xBF"
      "buffer_id,start,end,size,gaps\nx,0,0,4,\ny,0,5,4,2-2",
      "p.csv");
  CHECK(csv.problem == Problem{{{0, 1}, 4, 1}, {{0, 6}, 4, 1}});
  CHECK(csv.constraints.gaps[1] == std::vector<Gap>{{{2, 3}, std::nullopt}});
}

TEST_CASE("the output is the input with an offset") {
  CHECK(write_csv(parse_csv("size,id,upper,lower\r\n4,a,2,0\r\n\r\n4,b,2,1", "p.csv"), {{0, 4}, 8}) ==
        "size,id,upper,lower,offset\n4,a,2,0,0\n4,b,2,1,4\n");
  CHECK(write_csv(parse_csv("id,offset,lower,upper,size\na,99,0,2,4\nb,,1,2,4\n", "p.csv"), {{0, 4}, 8}) ==
        "id,offset,lower,upper,size\na,0,0,2,4\nb,4,1,2,4\n");
  const Plan plan{{0, 4}, 8};
  const std::string text = write_csv(Problem{{{0, 2}, 4, 1}, {{1, 2}, 4, 2}}, {"7", "9"}, &plan);
  CHECK(text == "id,lower,upper,size,alignment,offset\n7,0,2,4,1,0\n9,1,2,4,2,4\n");
  CHECK(parse_csv(text, "p.csv").problem == Problem{{{0, 2}, 4, 1}, {{1, 2}, 4, 2}});
}

TEST_CASE("no buffers at all is a problem too") {
  const CsvProblem csv = parse_csv("id,lower,upper,size\n", "p.csv");
  CHECK(csv.problem.empty());
  CHECK(write_csv(csv, {}) == "id,lower,upper,size,offset\n");
}

TEST_CASE("bad input: one error, with file and line") {
  struct Case {
    const char* text;
    const char* error;
  };
  const std::string header = "id,lower,upper,size,alignment,gaps\n";
  const Case cases[] = {
      {"", "p.csv: is empty; the first line must name the columns"},
      {"\n\n", "p.csv: is empty"},
      {"id,lower,upper", "p.csv:1: no column 'size'"},
      {"lower,upper,size", "p.csv:1: no column 'id'"},
      {"id,lower,upper,size,alignement", "p.csv:1: unknown column 'alignement'"},
      {"id,lower,upper,size,size", "p.csv:1: two columns give 'size'"},
      {"id,lower,upper,end,size", "p.csv:1: two columns give 'upper'"},
      {"a,0,4,8", "p.csv:1: unknown column 'a'"},  // no header
      {"id,lower,upper,size,alignment,gaps\na,0,4,8", "p.csv:2: has 4 fields; the header has 6 columns"},
      {"id,lower,upper,size,alignment,gaps\na,0,4,8,1,,7", "p.csv:2: has 7 fields"},
      {"*a,-3,4,8,1,", "p.csv:2: lower is '-3': it must not be negative"},
      {"*a,0,4,-8,1,", "p.csv:2: size is '-8': it must not be negative"},
      {"*a,0,x,8,1,", "p.csv:2: upper is 'x', not a whole number"},
      {"*a,0,4.5,8,1,", "p.csv:2: upper is '4.5', not a whole number"},
      {"*a,0,4,,1,", "p.csv:2: size is missing"},
      {"*,0,4,8,1,", "p.csv:2: id is missing"},
      {"*a,4,4,8,1,", "p.csv:2: the lifetime [4, 4) is empty"},
      {"*a,5,4,8,1,", "p.csv:2: the lifetime [5, 4) is inverted"},
      {"*a,0,4,1\xff,1,", "p.csv:2: size is '1\\xff', not a whole number"},
      {"*a,0,4,8,0,", "p.csv:2: the alignment is 0"},
      {"*a,0,4,8,1,\n\nb,0,4,8,1,\na,2,3,8,1,", "p.csv:5: id 'a' is used twice; first in line 2"},
      {"*a,0,4,18446744073709551616,1,", "p.csv:2: size is '18446744073709551616', more than 64 bits hold"},
      {"*a,0,4,18446744073709551615,1,", "p.csv:2: a size of 18446744073709551615 bytes brings the sum"},
      {"*a,0,4,5000000000000000000,1,\nb,5,6,5000000000000000000,1,",
       "p.csv:3: a size of 5000000000000000000 bytes"},
      {"*a,0,4,8,18446744073709551615,", "p.csv:2: a size of 8 bytes brings the sum"},
      {"id,lower,end,size\na,0,18446744073709551615,8", "p.csv:2: end is the last tick"},
      {"*a,0,4,8,1,1", "p.csv:2: gap '1' is not lower-upper"},
      {"*a,0,4,8,1,1-", "p.csv:2: a gap's upper is missing"},
      {"*a,0,4,8,1,2-2", "p.csv:2: gap '2-2' is empty or inverted"},
      {"*a,0,4,8,1,2-5", "p.csv:2: gap '2-5' leaves the lifetime [0, 4)"},
      {"*a,2,9,8,1,1-5", "p.csv:2: gap '1-5' leaves the lifetime [2, 9)"},
      {"*a,0,9,8,1,4-7 1-5", "p.csv:2: two gaps overlap at 4"},
      {"*a,0,9,8,1,1-5@3", "p.csv:2: gap '1-5@3' is not lower-upper"},
      {"*a,0,9,8,1,1-5@3:9", "p.csv:2: gap '1-5@3:9' has a window that is not within the size of 8 bytes"},
      {"*a,0,9,8,1,1-5@3:3", "p.csv:2: gap '1-5@3:3' has a window"},
  };
  for (const Case& bad : cases) {
    const std::string text = bad.text[0] == '*' ? header + (bad.text + 1) : std::string(bad.text);
    INFO(text);
    CHECK_THROWS_WITH_AS(parse_csv(text, "p.csv"), doctest::Contains(bad.error), Error);
  }
  CHECK_THROWS_WITH_AS(parse_csv(header + std::string("a,0,4,1\0more,1,", 15), "p.csv"),
                       "p.csv:2: size is '1\\x00more', not a whole number", Error);  // NUL ends nothing
  CHECK_THROWS_WITH_AS(read_csv("no/such.csv"),
                       doctest::Contains("no/such.csv: cannot be read: No such file"), Error);
  CHECK_THROWS_WITH_AS(read_csv("/"), doctest::Contains("/: cannot be read"), Error);
}

TEST_CASE("the real instances, by every planner") {
  struct Instance {
    const char* name;
    size_t buffers;
    Size load;
  };
  for (const Instance& instance : {Instance{"minimalloc/input.12", 5, 12},
                                   {"minimalloc/A.1048576", 154, 1048576},
                                   {"minimalloc/C.1048576", 203, 1039360},
                                   {"minimalloc/D.1048576", 213, 986112},
                                   {"minimalloc/J.1048576", 409, 989184},
                                   {"somas/resnet50", 1042, 0},
                                   {"iopddl/G_1", 816, 0}}) {
    const CsvProblem csv = read_csv(MEMOIR_TEST_DATA "/planning/" + std::string(instance.name) + ".csv");
    INFO(instance.name);
    CHECK(csv.problem.size() == instance.buffers);
    if (instance.load != 0) CHECK(load(csv.problem) == instance.load);
    for (const Planner& planner : planners()) {
      const Plan plan = planner.run(csv.problem);
      CHECK_FALSE(check(csv.problem, plan));
      CHECK(plan.arena_size >= load(csv.problem));
      CHECK(parse_csv(write_csv(csv, plan), "out.csv").problem == csv.problem);
    }
    CHECK(plan_quickly(csv.problem).arena_size <= 1.3 * static_cast<double>(load(csv.problem)));
  }
}

}  // namespace memoir
