// SPDX-License-Identifier: Apache-2.0
//
// Where the calling thread's own stack is.
#pragma once

#include "memoir/host/stacks/unwind_rule.h"

namespace memoir::stacks {

struct ThreadStack {
  Address begin = 0, end = 0;  // the lowest address that it may reach, and where it ends
};

/// Of the main thread without any call that allocates. Of others the C library is asked, which may allocate:
/// the caller takes care that it is not called again from there. {0, 0} when nobody knows.
ThreadStack find_thread_stack() noexcept;

}  // namespace memoir::stacks
