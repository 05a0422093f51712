// SPDX-License-Identifier: Apache-2.0
//
// Where the calling thread's own stack is, and other mappings.
#pragma once

#include <cstddef>

#include "memoir/process/stacks/unwind_rule.h"

namespace memoir::stacks {

struct ThreadStack {
  Address begin = 0, end = 0;  // the lowest address that it may reach, and where it ends
};

struct Mapping : ThreadStack {
  bool can_run = false;  // as code
};

/// The mapping that an address lies in; {0, 0} where it cannot be had. `ask`: by one call, where the kernel
/// has it (Linux 6.11), instead of reading all of the process's mappings. Its file's path goes to `name`,
/// which has `room` bytes; "" for none, and for one that is longer.
Mapping find_mapping(Address inside, bool ask = true, char* name = nullptr, std::size_t room = 0) noexcept;

/// Asks the kernel, not the C library: that locks the thread and allocates, and this may be called from an
/// allocation of its own while it does, or while the program's malloc holds its locks. {0, 0} when nobody
/// knows.
ThreadStack find_thread_stack() noexcept;

/// How far below the calling thread's pointer its outermost frame is, whose return address stands at `slot`;
/// 0: that cannot be so. Between them is the C library's static TLS, which is as large as the process's
/// libraries want: heights that another process is to know again count from the frame.
Address pointer_above_frames(Address slot) noexcept;

}  // namespace memoir::stacks
