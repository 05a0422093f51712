// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace memoir {

void bind_trace(nanobind::module_& module);
void bind_usage(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_skeleton(nanobind::module_& module);
void bind_search(nanobind::module_& module);
void bind_constraints(nanobind::module_& module);
void bind_host(nanobind::module_& module);
void bind_simulation(nanobind::module_& module);
void bind_lifetimes(nanobind::module_& module);
void bind_models(nanobind::module_& module);
void bind_placements(nanobind::module_& module);
void bind_formats(nanobind::module_& module);

}  // namespace memoir
