// SPDX-License-Identifier: Apache-2.0
// Counters of the kernel and the processor over a process and all it forks (perf_event_open with inherit).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace memoir::bench {

struct Counter {
  std::string name;
  int file = -1;  // -1: not available, and `error` says why (an errno)
  int error = 0;
  // the kernel's own work is not counted: /proc/sys/kernel/perf_event_paranoid forbids it
  bool user_only = false;
};

// Opens `name` on `process`, counting from its next exec. Known: cycles, instructions, dtlb_load_misses,
// dtlb_store_misses, page_faults.
Counter open_counter(const std::string& name, pid_t process);

// The count so far, scaled up when the processor had to share its registers among counters; < 0 when it never
// ran.
double read_counter(const Counter& counter);

std::vector<std::string> known_counters();

}  // namespace memoir::bench
