// SPDX-License-Identifier: Apache-2.0
#include "bind.h"

namespace memoir {

void bind_plan(nanobind::module_& module) { (void)module; }

}  // namespace memoir
