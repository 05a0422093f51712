// SPDX-License-Identifier: Apache-2.0
//
// A CSV that is accepted can be planned by every planner, and what is written can be read again. What its
// columns say beyond a plain problem is refused or planned, too.
#include <cstdint>
#include <string>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/simple/planners.h"

namespace {

void plain(const memoir::CsvProblem& csv) {
  for (const memoir::Planner& planner : memoir::planners()) {
    const memoir::Plan plan = memoir::with_empty(csv.problem, planner.run(memoir::sized(csv.problem)));
    MEMOIR_CHECK(!memoir::check(csv.problem, plan), "every plan is valid");
    const memoir::CsvProblem again = memoir::parse_csv(memoir::write_csv(csv, plan), "again");
    MEMOIR_CHECK(again.problem == csv.problem && again.ids == csv.ids, "what is written can be read");
    MEMOIR_CHECK(again.offsets.size() == plan.offsets.size(), "with the offsets");
  }
}

void constrained(const memoir::CsvProblem& csv) {
  // Its own arenas and banks, or some.
  const std::vector<memoir::ArenaChoice> given = {{"sram", 64, 1, {{8, 4}}},
                                                  {"dram", memoir::kNoLimit, 9, {}}};
  const bool own = !csv.constraints.arenas.empty();
  memoir::ConstrainedProblem problem =
      memoir::to_constrained(csv, own ? std::vector<memoir::ArenaChoice>{} : given);
  const std::vector<memoir::ArenaChoice>& arenas = problem.constraints.arenas;
  if (problem.constraints.banks.count == 0) problem.constraints.banks = {4, 16};
  problem.constraints.locality = true;
  memoir::SearchOptions options;
  options.work_limit = 200;
  for (const auto planner : {memoir::ConstrainedPlanner::kFirstFit, memoir::ConstrainedPlanner::kExact}) {
    const memoir::ConstrainedResult result = memoir::plan_constrained(problem, planner, options);
    if (!result.found) continue;
    MEMOIR_CHECK(!memoir::check(problem, result.plan), "every constrained plan is valid");
    const memoir::CsvProblem again = memoir::parse_csv(memoir::write_csv(csv, result.plan, arenas), "again");
    const bool several = arenas.size() > 1;
    MEMOIR_CHECK(again.problem == csv.problem, "and can be read");
    MEMOIR_CHECK(!several || again.arenas.size() == csv.ids.size(), "with the arenas");
    MEMOIR_CHECK(again.constraints.moves == csv.constraints.moves, "and what it said of the whole");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  try {
    const memoir::CsvProblem csv = memoir::parse_csv({reinterpret_cast<const char*>(data), size}, "fuzz");
    plain(csv);
    constrained(csv);
  } catch (const memoir::Error&) {
  }
  return 0;
}
