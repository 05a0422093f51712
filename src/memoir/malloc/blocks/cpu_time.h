// SPDX-License-Identifier: Apache-2.0
//
// CPU time, which takes a call of the system. Behind a filter that may not let it through it is the time that
// has passed: what is compared with it is measured in the same.
#pragma once

#include <time.h>

#include <cerrno>

#include "memoir/base/units.h"
#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

/// Nanoseconds of CLOCK_THREAD_CPUTIME_ID or CLOCK_PROCESS_CPUTIME_ID. Keeps errno.
inline std::int64_t cpu_time(clockid_t whose) noexcept {
  const int kept = errno;
  timespec time{};
  if (!host_control::may_call_all() || ::clock_gettime(whose, &time) != 0) {
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    errno = kept;
  }
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace memoir::malloc_
