// SPDX-License-Identifier: Apache-2.0
//
// A CSV that is accepted can be planned by every planner, and what is written can be read again.
#include <cstdint>
#include <string>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/plan/csv.h"
#include "memoir/plan/planners.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  try {
    const memoir::CsvProblem csv = memoir::parse_csv({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const memoir::Planner& planner : memoir::planners()) {
      const memoir::Plan plan = planner.run(csv.problem);
      MEMOIR_CHECK(!memoir::check(csv.problem, plan), "every plan is valid");
      const memoir::CsvProblem again = memoir::parse_csv(memoir::write_csv(csv, plan), "again");
      MEMOIR_CHECK(again.problem == csv.problem && again.ids == csv.ids, "what is written can be read");
      MEMOIR_CHECK(again.offsets.size() == plan.offsets.size(), "with the offsets");
    }
  } catch (const memoir::Error&) {
  }
  return 0;
}
