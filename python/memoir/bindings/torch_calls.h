// SPDX-License-Identifier: Apache-2.0
//
// How Python calls what is remembered.
#pragma once

#include <nanobind/nanobind.h>

namespace memoir {

/// Ledger, Memory and call_modules() for Python.
void bind_calls(nanobind::module_& module);

}  // namespace memoir
