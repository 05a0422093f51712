// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bind.h"
#include "columns.h"
#include "memoir/base/error.h"
#include "memoir/plan/plan.h"
#include "memoir/plan/program_plan.h"
#include "memoir/plan/skeleton.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {
namespace {

/// The skeletons of plans of one problem, each at sizes of its own.
struct Skeletons {
  std::vector<Skeleton> all;
  std::vector<Size> alignments;
  std::vector<bool> planned;
};

std::vector<PlannedAllocation> sequence_of(const Problem& problem, const Plan& plan) {
  std::vector<PlannedAllocation> sequence;
  for (size_t i = 0; i < problem.size(); ++i) {
    sequence.push_back({.size = problem[i].size,
                        .alignment = problem[i].alignment,
                        .lifetime = problem[i].lifetime,
                        .offset = plan.offsets[i]});
  }
  return sequence;
}

Skeletons of_plans(const Problem& problem, const nb::list& plans) {
  if (plans.size() == 0) throw Error("a skeleton is that of a plan, and there is none");
  Skeletons skeletons;
  for (const Buffer& buffer : problem) skeletons.alignments.push_back(buffer.alignment);
  skeletons.planned.assign(problem.size(), true);
  for (const nb::handle entry : plans) {
    const Plan& plan = nb::cast<const Plan&>(entry);
    if (plan.offsets.size() != problem.size()) throw Error("there must be one offset per buffer");
    skeletons.all.push_back(find_skeleton(sequence_of(problem, plan)));
  }
  return skeletons;
}

/// Of what a plan file holds: one memory.
Skeletons of_program(const ProgramPlan& program) {
  if (program.memories.size() > 1) {
    throw Error("this plan has " + std::to_string(program.memories.size()) +
                " memories; a skeleton places in one: take that of recorded_for()");
  }
  Skeletons skeletons;
  for (const PlannedAllocation& allocation : program.sequence) {
    skeletons.alignments.push_back(allocation.alignment);
    skeletons.planned.push_back(allocation.planned());
  }
  skeletons.all.push_back(program.skeleton ? *program.skeleton : find_skeleton(program.sequence));
  return skeletons;
}

Plan place_at(const Skeletons& skeletons, In sizes) {
  const nb::gil_scoped_release release;
  const std::span<const Size> given(sizes.data(), sizes.size());
  Plan best;
  best.arena_size = ~Size{0};
  for (const Skeleton& skeleton : skeletons.all) {
    std::vector<Offset> offsets = place_on(skeleton, given, skeletons.alignments);
    Size end = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (skeletons.planned[i]) end = std::max(end, offsets[i] + given[i]);
    }
    if (end < best.arena_size) best = {std::move(offsets), end};
  }
  return best;
}

}  // namespace

void bind_skeleton(nb::module_& module) {
  nb::class_<Skeletons>(
      module, "Skeleton",
      "Who lies on whom in one or more plans of the same buffers: plans for any other sizes.")
      .def(
          "__init__",
          [](Skeletons* self, const Problem& problem, const nb::list& plans) {
            new (self) Skeletons(of_plans(problem, plans));
          },
          "problem"_a, "plans"_a)
      .def_static("of", &of_program, "plan"_a,
                  "Of what a plan file holds: its skeleton, or that of its offsets. One size per allocation.")
      .def("__len__", [](const Skeletons& self) { return self.alignments.size(); })
      .def_prop_ro(
          "plans", [](const Skeletons& self) { return self.all.size(); }, "How many it is made of.")
      .def("at", &place_at, "sizes"_a,
           "The plan for these sizes in bytes, 0 allowed, the best of those that the skeletons give. Valid "
           "for "
           "any sizes, in time linear in the buffers. Releases the GIL.");
}

}  // namespace memoir
