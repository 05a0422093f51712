// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "background.h"
#include "bind.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/simple/stream.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {
namespace {

struct Found {
  SearchResult result;
  bool interrupted = false;  // Ctrl-C came: the best so far
  std::vector<std::pair<double, Size>> improvements;
};

Found search(const Problem& problem, bool exact, double deadline, std::uint64_t work_limit, unsigned threads,
             std::uint64_t seed, std::optional<Size> capacity, std::pair<Size, double> tolerance) {
  Found found;
  std::atomic<bool> stop{false};
  SearchOptions options{deadline,
                        work_limit,
                        threads,
                        seed,
                        capacity,
                        &stop,
                        [&](Size arena, double seconds) { found.improvements.emplace_back(seconds, arena); },
                        {tolerance.first, tolerance.second}};
  found.interrupted = in_background(
      stop, [&] { found.result = exact ? plan_exact(problem, options) : plan_auto(problem, options); });
  return found;
}

}  // namespace

void bind_search(nb::module_& module) {
  nb::class_<Found>(module, "SearchResult", "What a planner that searches found. Sizes in bytes.")
      .def_prop_ro(
          "plan", [](const Found& self) -> const Plan& { return self.result.plan; },
          nb::rv_policy::reference_internal)
      .def_prop_ro("arena_size", [](const Found& self) { return self.result.plan.arena_size; })
      .def_prop_ro("lower_bound", [](const Found& self) { return self.result.lower_bound; })
      .def_prop_ro("bound_reason", [](const Found& self) { return self.result.bound_reason; })
      .def_prop_ro("optimal", [](const Found& self) { return self.result.optimal; })
      .def_prop_ro("proven_infeasible", [](const Found& self) { return self.result.proven_infeasible; })
      .def_prop_ro("seconds", [](const Found& self) { return self.result.seconds; })
      .def_prop_ro(
          "cpu_seconds", [](const Found& self) { return self.result.cpu_seconds; },
          "Of all threads of this process while it searched.")
      .def_prop_ro(
          "starved", [](const Found& self) { return self.result.starved; },
          "The deadline ended it, and it had got less than 0.7 of one processor: more time would help.")
      .def_prop_ro(
          "work", [](const Found& self) { return self.result.work; }, "Placements tried.")
      .def_ro("interrupted", &Found::interrupted)
      .def_prop_ro(
          "improvements",
          [](const Found& self) {
            nb::list list;
            for (const auto& [seconds, arena] : self.improvements)
              list.append(nb::make_tuple(seconds, arena));
            return list;
          },
          "(seconds, arena_size) of each better plan.");
  module.def(
      "search", &search, "problem"_a, "exact"_a = false, "deadline"_a = 1.0, "work_limit"_a = 0,
      "threads"_a = 0, "seed"_a = 0, "capacity"_a = nb::none(), "tolerance"_a = std::pair<Size, double>(0, 0),
      "The portfolio `auto`, or only its complete search. With a work limit the deadline is not looked at. "
      "Tolerance: bytes and a share of the bound; without a capacity the first plan that is no more above "
      "the "
      "proven bound is good enough. Releases the GIL; Ctrl-C ends it with the best so far.");
  module.def(
      "stream_csv",
      [](const FileName& input, const FileName& output) {
        const Streamed streamed = [&] {
          const nb::gil_scoped_release release;
          return stream_csv(input, output);
        }();
        return nb::make_tuple(streamed.buffers, streamed.load, streamed.arena_size, streamed.most_live);
      },
      "input"_a, "output"_a,
      "Plans a CSV that is sorted by birth in memory proportional to what is live: (buffers, load, "
      "arena_size, "
      "most live at a time). Releases the GIL.");
}

}  // namespace memoir
