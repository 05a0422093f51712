// SPDX-License-Identifier: Apache-2.0
//
// The core as a Python module, with the names it has in C++. One bind_*.cpp per folder of the core.
#include <nanobind/nanobind.h>

#include <cstring>
#include <exception>

#include "bind.h"
#include "memoir/base/error.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // what a program still holds as it ends is none of its reader's business
  module.attr("__version__") = MEMOIR_VERSION;
  nb::exception<memoir::Error>(module, "Error").doc() =
      "A bad file or argument: what is wrong, where, and what to do. The command line exits with 2 on it.";
  // Tried before that one: a message may quote bytes of a file that are not UTF-8.
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void* type) {
        try {
          std::rethrow_exception(pointer);
        } catch (const memoir::Error& error) {
          const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
              error.what(), static_cast<Py_ssize_t>(std::strlen(error.what())), "backslashreplace"));
          PyErr_SetObject(static_cast<PyObject*>(type), text.ptr());
        }
      },
      nb::object(module.attr("Error")).ptr());
  memoir::bind_trace(module);
  memoir::bind_usage(module);
  memoir::bind_plan(module);
  memoir::bind_skeleton(module);
  memoir::bind_search(module);
  memoir::bind_constraints(module);
  memoir::bind_host(module);
  memoir::bind_simulation(module);
  memoir::bind_lifetimes(module);
  memoir::bind_models(module);
  memoir::bind_placements(module);
  memoir::bind_formats(module);
}
