// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <memory>

#include "background.h"
#include "bind.h"
#include "columns.h"
#include "memoir/base/error.h"
#include "memoir/plan/constrained/constrained.h"
#include "memoir/plan/constrained/reuse.h"
#include "memoir/plan/files/csv.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {
namespace {

std::vector<std::uint64_t> values(const In& in) { return {in.data(), in.data() + in.size()}; }

std::uint32_t index(std::uint64_t value) {  // of a buffer; validate() refuses those that are not there
  return value < kNoBuffer ? static_cast<std::uint32_t>(value) : kNoBuffer;
}

std::vector<Constraints::Pair> pairs(const In& first, const In& second) {
  std::vector<Constraints::Pair> out;
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i)
    out.emplace_back(index(first.data()[i]), index(second.data()[i]));
  return out;
}

/// Rows of (buffer, lower, upper, begin, end); begin == end: no window.
void set_gaps(ConstrainedProblem& problem, In buffer, In lower, In upper, In begin, In end) {
  auto& gaps = problem.constraints.gaps;
  gaps.assign(problem.buffers.size(), {});
  for (std::size_t k = 0; k < buffer.size(); ++k) {
    const std::uint64_t i = buffer.data()[k];
    if (i >= gaps.size()) throw Error("gap " + std::to_string(k) + " is of a buffer that is not there");
    Gap gap{{lower.data()[k], upper.data()[k]}, std::nullopt};
    const Offset from = begin.data()[k], to = end.data()[k];
    if (to < from) throw Error("gap " + std::to_string(k) + " has an inverted window");
    if (to > from) gap.window = Range{from, to - from};
    gaps[i].push_back(gap);
  }
  for (auto& list : gaps) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Gap& a, const Gap& b) { return a.lifetime.begin < b.lifetime.begin; });
  }
}

void set_old(ConstrainedProblem& problem, In offsets, In arenas) {
  auto& old = problem.constraints.old;
  old.clear();
  for (std::size_t i = 0; i < offsets.size(); ++i)
    old.push_back({offsets.data()[i], i < arenas.size() ? index(arenas.data()[i]) : 0});
}

void forbid(ConstrainedProblem& problem, const std::optional<std::string>& arena, Offset begin, Offset end) {
  auto& arenas = problem.constraints.arenas;
  if (begin >= end) {
    throw Error("the forbidden range " + std::to_string(begin) + ":" + std::to_string(end) +
                " is empty or inverted");
  }
  if (arenas.empty()) arenas.emplace_back();
  if (!arena && arenas.size() > 1) throw Error("a forbidden range is of one arena: say which of the several");
  const auto at = !arena ? arenas.begin()
                         : std::find_if(arenas.begin(), arenas.end(),
                                        [&](const auto& choice) { return choice.name == *arena; });
  if (at == arenas.end())
    throw Error("a range is forbidden in '" + *arena + "', which is not an arena that was given");
  at->forbidden.push_back({begin, end - begin});
}

struct ConstrainedFound {
  ConstrainedResult result;
  bool interrupted = false;
};

ConstrainedFound plan(const ConstrainedProblem& problem, const std::string& planner, double deadline,
                      std::uint64_t work_limit, std::uint64_t seed, std::optional<Size> capacity,
                      std::pair<Size, double> tolerance) {
  const ConstrainedPlanner chosen = planner == "exact"       ? ConstrainedPlanner::kExact
                                    : planner == "first_fit" ? ConstrainedPlanner::kFirstFit
                                                             : ConstrainedPlanner::kAuto;
  ConstrainedFound found;
  std::atomic<bool> stop{false};
  SearchOptions options;
  options.deadline_s = deadline;
  options.work_limit = work_limit;
  options.seed = seed;
  options.capacity = capacity;
  options.stop = &stop;
  options.tolerance = {tolerance.first, tolerance.second};
  found.interrupted = in_background(stop, [&] { found.result = plan_constrained(problem, chosen, options); });
  return found;
}

ConstrainedPlan to_plan(const ConstrainedProblem& problem, const In& offsets, const In& arenas) {
  ConstrainedPlan plan;
  plan.offsets = values(offsets);
  plan.arena_sizes.assign(std::max<std::size_t>(1, problem.constraints.arenas.size()), 0);
  if (plan.offsets.size() != problem.buffers.size()) throw Error("there must be one offset per buffer");
  for (std::size_t i = 0; i < plan.offsets.size(); ++i) {
    plan.arenas.push_back(i < arenas.size() ? index(arenas.data()[i]) : 0);
    if (plan.arenas[i] >= plan.arena_sizes.size()) continue;
    Size& size = plan.arena_sizes[plan.arenas[i]];
    size = std::max(size, problem.buffers[i].size == 0 ? 0 : plan.offsets[i] + problem.buffers[i].size);
  }
  return plan;
}

std::vector<ArenaChoice> named(const nb::list& arenas) {
  std::vector<ArenaChoice> out;
  for (const nb::handle one : arenas) {
    const auto [name, capacity, cost] =
        nb::cast<std::tuple<std::string, std::optional<Size>, std::uint64_t>>(one);
    out.push_back({name, capacity.value_or(kNoLimit), cost, {}});
  }
  return out;
}

void bind_constrained_problem(nb::module_& module) {
  nb::class_<ConstrainedProblem>(module, "ConstrainedProblem",
                                 "A problem and what it says beyond lifetimes, sizes and alignments.")
      .def(
          "__init__",
          [](ConstrainedProblem* self, const Problem& buffers, const nb::list& arenas) {
            new (self) ConstrainedProblem{buffers, {}, {}, {}};
            self->constraints.arenas = named(arenas);
          },
          "problem"_a, "arenas"_a = nb::list())
      .def(
          "__init__",
          [](ConstrainedProblem* self, const CsvProblem& csv, const nb::list& arenas) {
            new (self) ConstrainedProblem(to_constrained(csv, named(arenas)));
          },
          "csv"_a, "arenas"_a = nb::list())
      .def("__len__", [](const ConstrainedProblem& self) { return self.buffers.size(); })
      .def_ro("problem", &ConstrainedProblem::buffers)
      .def("set_alignments",
           [](ConstrainedProblem& self, const Problem& aligned) {
             if (aligned.size() != self.buffers.size()) throw Error("there must be one alignment per buffer");
             for (std::size_t i = 0; i < self.buffers.size(); ++i)
               self.buffers[i].alignment = aligned[i].alignment;
           })
      .def("set_gaps", &set_gaps, "buffer"_a, "lower"_a, "upper"_a, "begin"_a, "end"_a)
      .def("set_fixed", [](ConstrainedProblem& self, In a) { self.constraints.fixed = values(a); })
      .def("set_hints", [](ConstrainedProblem& self, In a) { self.constraints.hints = values(a); })
      .def("set_loops",
           [](ConstrainedProblem& self, In a) {
             self.constraints.loops.clear();
             for (const std::uint64_t value : values(a)) self.constraints.loops.push_back(index(value));
           })
      .def("set_low_sizes", [](ConstrainedProblem& self, In a) { self.constraints.low_sizes = values(a); })
      .def("set_weights", [](ConstrainedProblem& self, In a) { self.constraints.weights = values(a); })
      .def("set_allowed", [](ConstrainedProblem& self, In a) { self.constraints.allowed = values(a); })
      .def("set_alias",
           [](ConstrainedProblem& self, In a) {
             self.constraints.alias.clear();
             for (const std::uint64_t value : values(a)) {
               if (value != ~std::uint64_t{0} && value >= self.buffers.size())
                 throw Error("alias names a buffer that is not there");
               self.constraints.alias.push_back(index(value));
             }
           })
      .def("set_after",
           [](ConstrainedProblem& self, In a) {
             self.constraints.after.clear();
             for (const std::uint64_t value : values(a)) {
               if (value != ~std::uint64_t{0} && value >= self.buffers.size())
                 throw Error("after names a buffer that is not there");
               self.constraints.after.push_back(index(value));
             }
           })
      .def("set_old", &set_old, "offsets"_a, "arenas"_a)
      .def("set_in_place",
           [](ConstrainedProblem& self, In a, In b) { self.constraints.in_place = pairs(a, b); })
      .def("set_apart", [](ConstrainedProblem& self, In a, In b) { self.constraints.apart = pairs(a, b); })
      .def("set_prices",
           [](ConstrainedProblem& self, In a, In b, In price) {
             self.constraints.prices.clear();
             const std::vector<Size> bytes = values(price);
             const std::vector<Constraints::Pair> of = pairs(a, b);
             if (of.size() != bytes.size()) throw Error("there must be one price per pair");
             for (std::size_t k = 0; k < of.size(); ++k)
               self.constraints.prices.push_back({of[k].first, of[k].second, bytes[k]});
           })
      .def("set_conflicts",
           [](ConstrainedProblem& self, In a, In b) { self.constraints.conflicts = pairs(a, b); })
      .def("set_timed", [](ConstrainedProblem& self, bool timed) { self.constraints.timed = timed; })
      .def("set_moves", [](ConstrainedProblem& self, std::size_t moves) { self.constraints.moves = moves; })
      .def("set_locality", [](ConstrainedProblem& self) { self.constraints.locality = true; })
      .def("set_banks",
           [](ConstrainedProblem& self, Size count, Size width) {
             self.constraints.banks = {count, width};
           })
      .def("forbid", &forbid, "arena"_a.none(), "begin"_a, "end"_a)
      .def_prop_ro("timed", [](const ConstrainedProblem& self) { return self.constraints.timed; })
      .def_prop_ro("known_before",
                   [](const ConstrainedProblem& self) {
                     return std::count_if(self.constraints.old.begin(), self.constraints.old.end(),
                                          [](const OldPlace& old) { return old.offset != kNoOffset; });
                   })
      .def_prop_ro("hints",
                   [](const ConstrainedProblem& self) {
                     return std::count_if(self.constraints.hints.begin(), self.constraints.hints.end(),
                                          [](Offset hint) { return hint != kNoOffset; });
                   })
      .def_prop_ro(
          "says",
          [](const ConstrainedProblem& self) {
            nb::list list;
            for (const std::string& what : said(self.constraints)) list.append(what);
            return list;
          },
          "The names of what it says beyond a plain problem.")
      .def(
          "plain",
          [](const ConstrainedProblem& self) -> nb::object {
            auto reduced = reduce_to_plain(self);
            if (!reduced) return nb::none();
            std::vector<std::uint64_t> body_of(reduced->body_of.begin(), reduced->body_of.end());
            return nb::make_tuple(nb::cast(std::move(reduced->problem)), array(body_of),
                                  array(reduced->shift));
          },
          "Where a plain problem has the same plans: it, for each buffer the one of it that it became, and "
          "the bytes from that one's offset to its own. Or None.")
      .def("validate", [](const ConstrainedProblem& self) { validate(self); })
      .def(
          "low_load", [](const ConstrainedProblem& self) { return low_load(self); },
          "The load when every buffer has its smallest size.");
}

void bind_result(nb::module_& module) {
  const auto of = [](auto get) { return [get](const ConstrainedFound& self) { return get(self.result); }; };
  nb::class_<ConstrainedFound>(module, "ConstrainedResult", "What was found. Sizes in bytes.")
      .def_prop_ro("found", of([](const ConstrainedResult& r) { return r.found; }))
      .def_prop_ro("plan", of([](const ConstrainedResult& r) {
                     return Plan{r.plan.offsets, r.objective.total};
                   }))
      .def_prop_ro("arenas", of([](const ConstrainedResult& r) {
                     return array({r.plan.arenas.begin(), r.plan.arenas.end()});
                   }))
      .def_prop_ro("arena_sizes", of([](const ConstrainedResult& r) { return array(r.plan.arena_sizes); }))
      .def_prop_ro("moves", of([](const ConstrainedResult& r) { return r.objective.moves; }))
      .def_prop_ro("cost", of([](const ConstrainedResult& r) { return r.objective.cost; }))
      .def_prop_ro("least_moves", of([](const ConstrainedResult& r) { return r.lower_bound.moves; }))
      .def_prop_ro("least_cost", of([](const ConstrainedResult& r) { return r.lower_bound.cost; }))
      .def_prop_ro("least_total", of([](const ConstrainedResult& r) { return r.lower_bound.total; }))
      .def_prop_ro("bound_reason", of([](const ConstrainedResult& r) { return r.bound_reason; }))
      .def_prop_ro("cost_reason", of([](const ConstrainedResult& r) { return r.cost_reason; }))
      .def_prop_ro("paid", of([](const ConstrainedResult& r) { return r.paid; }))
      .def_prop_ro("least_priced", of([](const ConstrainedResult& r) { return r.least_priced; }))
      .def_prop_ro("load", of([](const ConstrainedResult& r) { return r.load; }))
      .def_prop_ro("optimal", of([](const ConstrainedResult& r) { return r.optimal; }))
      .def_prop_ro("fits", of([](const ConstrainedResult& r) { return r.fits; }))
      .def_prop_ro("proven_infeasible", of([](const ConstrainedResult& r) { return r.proven_infeasible; }))
      .def_prop_ro("maker", of([](const ConstrainedResult& r) { return r.maker; }))
      .def_prop_ro("work", of([](const ConstrainedResult& r) { return r.work; }))
      .def_ro("interrupted", &ConstrainedFound::interrupted);
  module.def("plan_constrained", &plan, "problem"_a, "planner"_a, "deadline"_a = 1.0, "work_limit"_a = 0,
             "seed"_a = 0, "capacity"_a = nb::none(), "tolerance"_a = std::pair<Size, double>(0, 0),
             "By auto, exact or first_fit. Releases the GIL; Ctrl-C ends it with the best so far.");
  module.def(
      "check_constrained",
      [](const ConstrainedProblem& problem, In offsets, In arenas) -> std::optional<nb::tuple> {
        const auto violation = check(problem, to_plan(problem, offsets, arenas));
        if (!violation) return std::nullopt;
        return nb::make_tuple(violation->first, violation->second, violation->what);
      },
      "problem"_a, "offsets"_a, "arenas"_a,
      "Why this is not a plan: (buffer, buffer, reason); None when it is one.");
  module.def(
      "measure",
      [](const ConstrainedProblem& problem, In offsets, In arenas) {
        const ConstrainedPlan plan = to_plan(problem, offsets, arenas);
        const Reuse reuse = reuse_of(problem, plan);
        return nb::make_tuple(count_moves(problem, plan), cost_of(problem, plan), count_hints(problem, plan),
                              reuse.warm_bytes, reuse.cold_bytes, reuse.mean_age());
      },
      "problem"_a, "offsets"_a, "arenas"_a,
      "(moves, cost, hints followed, bytes used before, bytes used by none before, mean ticks since the "
      "former "
      "were freed)");
}

}  // namespace

void bind_constraints(nb::module_& module) {
  bind_constrained_problem(module);
  bind_result(module);
}

}  // namespace memoir
