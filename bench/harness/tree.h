// SPDX-License-Identifier: Apache-2.0
// The processes below this one, as /proc lists them (needs CONFIG_PROC_CHILDREN, on in distributions'
// kernels).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace memoir::bench {

// Every living descendant of `root`, without `root`. A process that is forked or dies meanwhile may be
// missed: call again.
std::vector<pid_t> descendants(pid_t root);

// Resident bytes of one process; 0 when it is gone. Reads counters only: takes no lock of the process.
uint64_t resident_bytes(pid_t process);

}  // namespace memoir::bench
