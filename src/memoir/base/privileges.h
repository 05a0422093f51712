// SPDX-License-Identifier: Apache-2.0
//
// Programs that have more rights than who starts them: set-user-ID, set-group-ID, with file capabilities. Who
// starts them chooses the variables, so nothing there may follow a variable or a file of ours.
#pragma once

#include <sys/auxv.h>

namespace memoir {

/// Whether this process is one. The kernel says so to each program at its start (AT_SECURE). Calls no malloc.
inline bool has_more_rights() noexcept { return ::getauxval(AT_SECURE) != 0; }

}  // namespace memoir
