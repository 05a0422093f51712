// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>

#include "bind.h"
#include "columns.h"
#include "memoir/base/error.h"
#include "memoir/heap/pool/device_pool_heap.h"
#include "memoir/plan/files/csv.h"
#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/files/plan_file.h"
#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/simple/aligned_load.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/simulate/plan_run.h"
#include "memoir/trace/read/trace.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {
namespace {

nb::list strings(const std::vector<std::string>& values) {
  nb::list list;
  for (const std::string& value : values) {  // text of a file need not be UTF-8
    list.append(nb::steal(
        PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "surrogateescape")));
  }
  return list;
}

void make_problem(Problem* self, In lower, In upper, In size, In alignment) {
  if (upper.size() != lower.size() || size.size() != lower.size() || alignment.size() != lower.size()) {
    throw Error("lower, upper, size and alignment have " + std::to_string(lower.size()) + ", " +
                std::to_string(upper.size()) + ", " + std::to_string(size.size()) + " and " +
                std::to_string(alignment.size()) + " elements; they must have as many");
  }
  Problem problem(lower.size());
  for (size_t i = 0; i < problem.size(); ++i) {
    problem[i] = {{lower.data()[i], upper.data()[i]}, size.data()[i], alignment.data()[i]};
  }
  validate(problem, Empty::kAllowed);
  new (self) Problem(std::move(problem));
}

void must_be_of(const Problem& problem, const Plan& plan) {
  if (plan.offsets.size() != problem.size()) throw Error("there must be one offset per buffer");
}

template <class Run>
auto without_gil(Run run) {
  const nb::gil_scoped_release release;
  return run();
}

std::optional<nb::tuple> check_plan(const Problem& problem, const Plan& plan) {
  const auto violation = without_gil([&] { return quick_check(problem, plan); });
  if (!violation) return std::nullopt;
  return nb::make_tuple(violation->first, violation->second, violation->what);
}

nb::tuple quickly(const Problem& problem) {
  std::string_view planner;
  const Plan plan = without_gil([&] { return plan_quickly(problem, &planner); });
  return nb::make_tuple(plan, planner);
}

Plan in_order(const Problem& problem, In order) {
  std::vector<std::uint32_t> places(problem.size());
  std::vector<bool> seen(problem.size());
  if (order.size() != problem.size()) throw Error("the order must name every buffer once");
  for (size_t i = 0; i < places.size(); ++i) {
    const std::uint64_t index = order.data()[i];
    if (index >= seen.size() || seen[index]) throw Error("the order must name every buffer once");
    seen[index] = true;
    places[i] = static_cast<std::uint32_t>(index);
  }
  return without_gil([&] { return place_in_order(problem, places, Fit::kFirst); });
}

/// A plan of buffers that no trace knows, as a plan file holds it: in the order of their births, without
/// sites.
ProgramPlan record_problem(const Problem& problem, const Plan& plan, const std::string& planner) {
  must_be_of(problem, plan);
  RecordedPlan recorded{{}, plan.arena_size, load(problem), planner, {}};
  std::vector<size_t> order(problem.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return problem[a].lifetime.begin < problem[b].lifetime.begin; });
  for (const size_t i : order) {
    recorded.sequence.push_back({kNoSite, problem[i].size, problem[i].alignment, problem[i].lifetime,
                                 problem[i].size == 0 ? kNoOffset : plan.offsets[i]});
  }
  return program_of(recorded);
}

struct TracePass {
  RecordedPass recorded;
  bool complete = true;
  std::uint64_t dropped = 0;
};

TracePass read_trace_pass(const Trace& trace, std::optional<std::uint64_t> pass,
                          std::optional<std::uint16_t> device) {
  return {read_pass(trace, pass, device), trace.complete(), trace.dropped()};
}

nb::tuple tally(const Amount& tally) { return nb::make_tuple(tally.count, tally.bytes); }

void bind_problem(nb::module_& module) {
  nb::class_<Problem>(module, "Problem",
                      "Buffers to be planned: half-open lifetimes in ticks, sizes and alignments in bytes.")
      .def("__init__", &make_problem, "lower"_a, "upper"_a, "size"_a, "alignment"_a)
      .def("__len__", [](const Problem& self) { return self.size(); })
      .def_prop_ro("lower",
                   [](const Problem& self) { return column(self, [](auto& b) { return b.lifetime.begin; }); })
      .def_prop_ro("upper",
                   [](const Problem& self) { return column(self, [](auto& b) { return b.lifetime.end; }); })
      .def_prop_ro("size", [](const Problem& self) { return column(self, [](auto& b) { return b.size; }); })
      .def_prop_ro("alignment",
                   [](const Problem& self) { return column(self, [](auto& b) { return b.alignment; }); })
      .def_prop_ro(
          "total_size",
          [](const Problem& self) {
            return std::accumulate(self.begin(), self.end(), Size{0},
                                   [](Size sum, const Buffer& b) { return sum + b.size; });
          },
          "Bytes of all buffers together.")
      .def(
          "sized",
          [](const Problem& self) { return has_empty(self) ? std::optional(sized(self)) : std::nullopt; },
          "The buffers that have bytes, which are what a planner takes; None when all have.")
      .def("with_empty", &with_empty, "plan"_a,
           "The plan of this problem from that of sized(): buffers of 0 bytes get the offset 0.")
      .def("aligned_to", &aligned_to, "alignment"_a,
           "The same buffers, every offset a multiple of `alignment` too.");
  module.def("busiest_tick", &busiest_tick, "problem"_a,
             "The first tick at which as many bytes are live as at any.");
  module.def("load", &load, "problem"_a, nb::call_guard<nb::gil_scoped_release>(),
             "The most bytes live at one tick.");
  module.def(
      "aligned_load", [](const Problem& problem) { return aligned_load(sized(problem)); }, "problem"_a,
      nb::call_guard<nb::gil_scoped_release>(),
      "A floor of the arena, never below load(), that knows of alignment.");
  module.def("check", &check_plan, "problem"_a, "plan"_a,
             "Why this is not a plan: (buffer, buffer, reason); None when it is one.");
  module.def(
      "planners",
      [] {
        nb::list list;
        for (const Planner& planner : planners()) list.append(nb::make_tuple(planner.name, planner.what));
        return list;
      },
      "(name, what it does) of every planner in C++, cheapest first.");
  module.def(
      "run_planner",
      [](std::string_view name, const Problem& problem, std::optional<double> deadline) {
        const Planner& planner = find_planner(name);
        return without_gil([&] {
          return deadline && planner.run_within != nullptr ? planner.run_within(problem, *deadline)
                                                           : planner.run(problem);
        });
      },
      "name"_a, "problem"_a, "deadline"_a = nb::none(),
      "The deadline in seconds binds those that would search on. Releases the GIL.");
  module.def("plan_quickly", &quickly, "problem"_a,
             "(plan, planner) of the best cheap planner. Releases the GIL.");
  module.def("place_in_order", &in_order, "problem"_a, "order"_a,
             "The plan with each buffer at the lowest place free. Releases the GIL.");
}

/// What the planners hand on: numpy sees the offsets only where it asks for them.
void bind_offsets(nb::module_& module) {
  nb::class_<Plan>(module, "Plan",
                   "One offset per buffer, in the problem's order, and the arena they fit into.")
      .def(
          "__init__",
          [](Plan* self, In offsets, Size arena_size) {
            new (self) Plan{{offsets.data(), offsets.data() + offsets.size()}, arena_size};
          },
          "offsets"_a, "arena_size"_a)
      .def("__len__", [](const Plan& self) { return self.offsets.size(); })
      .def("__reduce__",
           [](const Plan& self) {
             return nb::make_tuple(nb::type<Plan>(), nb::make_tuple(array(self.offsets), self.arena_size));
           })
      .def_ro("arena_size", &Plan::arena_size, "Bytes.")
      .def_prop_ro(
          "offsets", [](const Plan& self) { return array(self.offsets); }, "A new array, in bytes.");
}

void bind_csv(nb::module_& module) {
  nb::class_<CsvProblem>(module, "CsvProblem",
                         "A problem read from CSV; keeps the text, to write it with offsets.")
      .def_ro("problem", &CsvProblem::problem)
      .def_prop_ro("ids", [](const CsvProblem& self) { return strings(self.ids); })
      .def_prop_ro("has_gaps", &CsvProblem::has_gaps)
      .def_prop_ro("has_constraints", &CsvProblem::has_constraints)
      .def_prop_ro("timed", [](const CsvProblem& self) { return self.constraints.timed; })
      .def_prop_ro(
          "arenas", [](const CsvProblem& self) { return strings(self.arenas); },
          "The arena column, or empty.")
      .def_prop_ro(
          "offsets",
          [](const CsvProblem& self) -> nb::object {
            const auto known = [](const auto& offset) { return offset.has_value(); };
            if (self.offsets.empty() || !std::all_of(self.offsets.begin(), self.offsets.end(), known))
              return nb::none();
            return column(self.offsets, [](const auto& offset) { return *offset; });
          },
          "The offset column; None when there is none, or not for every buffer.")
      .def_prop_ro(
          "arena_choices",
          [](const CsvProblem& self) {
            nb::list list;
            for (const ArenaChoice& arena : self.constraints.arenas) {
              if (arena.name.empty()) continue;
              const nb::object capacity =
                  arena.capacity == kNoLimit ? nb::object(nb::none()) : nb::cast(arena.capacity);
              list.append(nb::make_tuple(arena.name, capacity, arena.cost));
            }
            return list;
          },
          "(name, bytes or None, cost) of each arena that it names.")
      .def_prop_ro("locality", [](const CsvProblem& self) { return self.constraints.locality; })
      .def_ro("bandwidth", &CsvProblem::bandwidth, "Bytes per tick to other memory and back, or None.")
      .def_prop_ro("has_conflicts",
                   [](const CsvProblem& self) { return !self.constraints.conflicts.empty(); })
      .def_ro("inclusive", &CsvProblem::inclusive, "Its ends are inclusive, and so are those of gaps.")
      .def_prop_ro(
          "idle",
          [](const CsvProblem& self) {
            nb::list rows;
            for (size_t i = 0; i < self.idle.size(); ++i) {
              for (const Lifetime& idle : self.idle[i]) rows.append(nb::make_tuple(i, idle.begin, idle.end));
            }
            return rows;
          },
          "The idle column, as rows (buffer, lower, upper).")
      .def_prop_ro(
          "recompute",
          [](const CsvProblem& self) {
            nb::list costs;
            for (const auto& cost : self.recompute) costs.append(nb::cast(cost));
            return costs;
          },
          "The recompute column, None where it is empty; or an empty list without the column.")
      .def(
          "write",
          [](const CsvProblem& self, const Plan& plan) {
            must_be_of(self.problem, plan);
            const std::string text = write_csv(self, plan);
            return nb::bytes(text.data(), text.size());
          },
          "plan"_a, "The text as it was read, with these offsets.")
      .def(
          "write",
          [](const CsvProblem& self, const Plan& all, In arenas, const nb::list& names) {
            must_be_of(self.problem, all);
            if (arenas.size() != self.problem.size()) throw Error("there must be one arena per buffer");
            std::vector<ArenaChoice> choices;
            for (const nb::handle name : names)
              choices.push_back({nb::cast<std::string>(name), kNoLimit, 0, {}});
            ConstrainedPlan plan{all.offsets, {}, {}};
            for (size_t i = 0; i < arenas.size(); ++i) {
              if (arenas.data()[i] >= names.size()) throw Error("an arena is not among the names");
              plan.arenas.push_back(static_cast<std::uint32_t>(arenas.data()[i]));
            }
            const std::string text = write_csv(self, plan, choices);
            return nb::bytes(text.data(), text.size());
          },
          "plan"_a, "arenas"_a, "names"_a, "The same, and with several arenas their names.");
  module.def(
      "read_csv", [](const FileName& path) { return read_csv(path); }, "path"_a,
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "parse_csv",
      [](nb::bytes text, const FileName& name) {
        return parse_csv({text.c_str(), text.size()}, name);
      },
      "text"_a, "name"_a, "The same of text; `name` is for errors.");
  module.def(
      "write_column",
      [](nb::bytes text, const FileName& name, const nb::list& values) {
        std::vector<std::string> cells;
        for (const nb::handle value : values) cells.push_back(nb::cast<std::string>(value));
        const std::string out = write_column({text.c_str(), text.size()}, name, cells);
        return nb::bytes(out.data(), out.size());
      },
      "text"_a, "name"_a, "values"_a, "CSV with that column added or replaced: one value per row.");
}

void bind_recorded(nb::module_& module) {
  nb::class_<TracePass>(module, "RecordedPass",
                        "One pass of a trace: what is planned of it, and what is not.")
      .def_prop_ro(
          "number", [](const TracePass& self) { return self.recorded.pass; },
          "None: the trace has no passes.")
      .def_prop_ro(
          "problem", [](const TracePass& self) -> const Problem& { return self.recorded.problem; },
          nb::rv_policy::reference_internal)
      .def_prop_ro(
          "objects",
          [](const TracePass& self) {
            return column(self.recorded.positions,
                          [&](std::uint32_t at) { return self.recorded.objects[at]; });
          },
          "The object ids of the problem's buffers.")
      .def_prop_ro("allocations", [](const TracePass& self) { return self.recorded.sequence.size(); })
      .def_prop_ro(
          "escaping", [](const TracePass& self) { return tally(self.recorded.escaping); }, "(count, bytes)")
      .def_prop_ro(
          "foreign", [](const TracePass& self) { return tally(self.recorded.foreign); }, "(count, bytes)")
      .def_prop_ro(
          "elsewhere", [](const TracePass& self) { return tally(self.recorded.elsewhere); }, "(count, bytes)")
      .def_prop_ro(
          "empty", [](const TracePass& self) { return tally(self.recorded.empty); }, "(count, bytes)")
      .def_ro("complete", &TracePass::complete)
      .def_ro("dropped", &TracePass::dropped)
      .def(
          "record",
          [](const TracePass& self, const Plan& plan, const std::string& planner) {
            must_be_of(self.recorded.problem, plan);
            return program_of(record_plan(self.recorded, plan, planner));
          },
          "plan"_a, "planner"_a, "The plan written back to the pass: what a plan file holds.")
      .def(
          "write_csv",
          [](const TracePass& self, const Plan& plan) {
            must_be_of(self.recorded.problem, plan);
            std::vector<std::string> ids;
            for (const std::uint32_t at : self.recorded.positions)
              ids.push_back(std::to_string(self.recorded.objects[at]));
            const std::string text = write_csv(self.recorded.problem, ids, &plan);
            return nb::bytes(text.data(), text.size());
          },
          "plan"_a, "The problem as CSV, the object ids as ids, with these offsets.");
  module.def("read_pass", &read_trace_pass, "trace"_a, "pass_number"_a = nb::none(), "device"_a = nb::none(),
             nb::call_guard<nb::gil_scoped_release>(),
             "That pass of a trace; without a number the last complete one, without a device those of all.");
}

/// The columns of a sequence, one element per allocation in the order in which they were made.
template <class Bound>
void bind_sequence(nb::class_<Bound>& bound) {
  const auto field = [](auto get) { return [get](const Bound& self) { return column(self.sequence, get); }; };
  bound.def_ro("planner", &Bound::planner)
      .def("__len__", [](const Bound& self) { return self.sequence.size(); })
      .def_prop_ro("sites", field([](const PlannedAllocation& a) { return a.site; }))
      .def_prop_ro("sizes", field([](const PlannedAllocation& a) { return a.size; }))
      .def_prop_ro("alignments", field([](const PlannedAllocation& a) { return a.alignment; }))
      .def_prop_ro("lower", field([](const PlannedAllocation& a) { return a.lifetime.begin; }))
      .def_prop_ro("upper", field([](const PlannedAllocation& a) { return a.lifetime.end; }))
      .def_prop_ro("offsets", field([](const PlannedAllocation& a) { return a.offset; }),
                   "2^64 - 1: not planned.")
      .def_prop_ro("streams", field([](const PlannedAllocation& a) { return a.stream; }))
      .def_prop_ro("devices", field([](const PlannedAllocation& a) { return a.device; }))
      .def_prop_ro("pools", field([](const PlannedAllocation& a) { return a.pool; }),
                   "0: the device's default pool.")
      .def_prop_ro("meta", [](const Bound& self) {
        nb::list list;
        for (const auto& [key, value] : self.meta) {
          const nb::list pair = strings({key, value});
          list.append(nb::make_tuple(pair[0], pair[1]));
        }
        return list;
      });
}

void bind_plan_files(nb::module_& module) {
  nb::class_<RecordedPlan> recorded(
      module, "RecordedPlan",
      "What one heap follows: the allocations that it was asked for in a recording, laid out in one arena.");
  recorded.def_ro("arena_size", &RecordedPlan::arena_size, "Bytes.")
      .def_ro("load", &RecordedPlan::load, "Bytes: the most planned ones live at once.");
  bind_sequence(recorded);

  nb::class_<PlannedMemory>(module, "PlannedMemory", "One of the memories of a plan; all in bytes.")
      .def_ro("name", &PlannedMemory::name)
      .def_prop_ro(
          "capacity",
          [](const PlannedMemory& self) -> std::optional<Size> {
            if (self.capacity == PlannedMemory::kNoLimit) return std::nullopt;
            return self.capacity;
          },
          "None: not known.")
      .def_ro("alignment", &PlannedMemory::alignment)
      .def_ro("size", &PlannedMemory::size, "What the plan needs of it.")
      .def_ro("load", &PlannedMemory::load, "The most planned bytes live in it at once.");

  nb::class_<ProgramPlan> program(
      module, "ProgramPlan",
      "What a plan file holds: the allocations of a program, laid out in one or more memories.");
  bind_sequence(program);
  program
      .def_prop_ro("memories",
                   [](const ProgramPlan& self) {
                     nb::list list;
                     for (const PlannedMemory& memory : self.memories) list.append(nb::cast(memory));
                     return list;
                   })
      .def_prop_ro(
          "places",
          [](const ProgramPlan& self) {
            return column(self.sequence, [](const PlannedAllocation& a) { return a.memory; });
          },
          "Which of the memories each allocation is planned in; 0 for what is not planned.")
      .def_prop_ro(
          "heaps",
          [](const ProgramPlan& self) {
            nb::list list;
            for (const auto& [device, pool] : heaps_of(self)) list.append(nb::make_tuple(device, pool));
            return list;
          },
          "(device, pool) of each heap that the plan is for.")
      .def_prop_ro(
          "skeleton_pairs",
          [](const ProgramPlan& self) -> std::optional<size_t> {
            if (!self.skeleton) return std::nullopt;
            return self.skeleton->below.size();
          },
          "How many pairs its skeleton has; None without one.")
      .def("recorded_for", &recorded_for, "device"_a = 0, "pool"_a = 0,
           "What the heap of that pool on that device is to follow. Error when that is not in a memory of "
           "its own.")
      .def(
          "with_skeleton",
          [](ProgramPlan self) {
            self.skeleton = find_skeleton(self.sequence);
            return self;
          },
          "The same plan, with the skeleton that its offsets have.")
      .def(
          "to_bytes",
          [](const ProgramPlan& self) {
            const std::string bytes = write_plan(self);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "The bytes of a .plan file.");
  module.def(
      "open_plan", [](const FileName& path) { return open_plan(path); }, "path"_a,
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "read_plan",
      [](nb::bytes bytes, const FileName& name) {
        return read_plan({bytes.c_str(), bytes.size()}, name);
      },
      "bytes"_a, "name"_a = "<memory>", "The plan in the bytes of a .plan file; `name` is for errors.");
  module.def("record_problem", &record_problem, "problem"_a, "plan"_a, "planner"_a);
  module.def(
      "plan_run",
      [](const Trace& trace, std::uint16_t device, Size alignment) {
        return plan_run(trace, device, alignment);
      },
      "trace"_a, "device"_a = 0, "alignment"_a = DevicePoolOptions{}.alignment,
      nb::call_guard<nb::gil_scoped_release>(),
      "A plan of all that a device was asked for in the whole trace, for the guided pool to follow.");
}

}  // namespace

void bind_plan(nb::module_& module) {
  bind_offsets(module);
  bind_problem(module);
  bind_csv(module);
  bind_recorded(module);
  bind_plan_files(module);
}

}  // namespace memoir
