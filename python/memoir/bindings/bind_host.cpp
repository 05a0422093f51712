// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/trace/read/trace.h"

namespace nb = nanobind;

namespace memoir {

namespace {

// The last complete pass of a recording, planned by the quick planners: what a remembered model does on its
// second call.
RecordedPlan plan_recording(nb::bytes bytes) {
  const std::span view(static_cast<const std::byte*>(bytes.data()), bytes.size());
  const nb::gil_scoped_release release;
  const Trace trace = Trace::from_bytes(view);
  const RecordedPass pass = read_pass(trace.events());
  std::string_view planner;
  const Plan plan = plan_quickly(pass.problem, &planner);
  return record_plan(pass, plan, planner);
}

}  // namespace

void bind_host(nb::module_& module) {
  module.def("plan_recording", &plan_recording, nb::arg("trace"),
             "The plan of the last complete pass in the bytes of a trace. Throws Error when there is none.");
}

}  // namespace memoir
