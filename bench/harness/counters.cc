// SPDX-License-Identifier: Apache-2.0
#include "counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace memoir::bench {

namespace {

struct Known {
  const char* name;
  uint32_t type;
  uint64_t config;
};

constexpr uint64_t cache_event(uint64_t cache, uint64_t operation, uint64_t result) {
  return cache | (operation << 8) | (result << 16);
}

constexpr Known kKnown[] = {
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"dtlb_load_misses", PERF_TYPE_HW_CACHE,
     cache_event(PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS)},
    {"dtlb_store_misses", PERF_TYPE_HW_CACHE,
     cache_event(PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_OP_WRITE, PERF_COUNT_HW_CACHE_RESULT_MISS)},
    {"page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
};

}  // namespace

Counter open_counter(const std::string& name, pid_t process) {
  Counter counter;
  counter.name = name;
  counter.error = EINVAL;
  for (const Known& known : kKnown) {
    if (name != known.name) continue;
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = known.type;
    attributes.config = known.config;
    attributes.disabled = 1;
    attributes.inherit = 1;
    attributes.enable_on_exec = 1;
    attributes.exclude_hv = 1;
    attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    for (const bool user_only : {false, true}) {
      attributes.exclude_kernel = user_only;
      counter.user_only = user_only;
      counter.file =
          static_cast<int>(syscall(SYS_perf_event_open, &attributes, process, -1, -1, PERF_FLAG_FD_CLOEXEC));
      if (counter.file >= 0) {
        counter.error = 0;
        return counter;
      }
      counter.error = errno;
    }
  }
  return counter;
}

double read_counter(const Counter& counter) {
  uint64_t values[3] = {};  // count, time enabled, time running
  if (read(counter.file, values, sizeof values) != sizeof values || values[2] == 0) return -1.0;
  return static_cast<double>(values[0]) * static_cast<double>(values[1]) / static_cast<double>(values[2]);
}

std::vector<std::string> known_counters() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

}  // namespace memoir::bench
