// SPDX-License-Identifier: Apache-2.0
//
// The core as a Python module, with the names it has in C++. One bind_*.cpp per folder of the core.
#include <nanobind/nanobind.h>

#include "bind.h"
#include "memoir/base/error.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // what a program still holds as it ends is none of its reader's business
  module.attr("__version__") = MEMOIR_VERSION;
  nb::exception<memoir::Error>(module, "Error").doc() =
      "A bad file or argument: what is wrong, where, and what to do. The command line exits with 2 on it.";
  memoir::bind_trace(module);
  memoir::bind_usage(module);
  memoir::bind_plan(module);
  memoir::bind_skeleton(module);
  memoir::bind_search(module);
  memoir::bind_constraints(module);
  memoir::bind_host(module);
  memoir::bind_simulation(module);
  memoir::bind_lifetimes(module);
  memoir::bind_placements(module);
  memoir::bind_formats(module);
}
