// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/control/sandbox.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include <atomic>

#include "memoir/process/control/quiet_calls.h"

namespace memoir::host_control {

namespace {

enum State : int { kUnknown, kOpen, kTrusted, kFromStart, kEntered };
std::atomic<int> state{kUnknown};
std::atomic<bool> trusted{false};

/// What /proc/self/status says: 0 without a filter, or -1 when it says nothing.
int filter_in_status() noexcept {
  const int file = quiet::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  char text[4096];
  size_t length = 0;
  const char* line = nullptr;
  while (line == nullptr && length + 1 < sizeof text) {
    const ssize_t got = quiet::read(file, text + length, sizeof text - 1 - length);
    if (got <= 0) break;
    length += static_cast<size_t>(got);
    text[length] = '\0';
    line = strstr(text, "\nSeccomp:\t");
  }
  quiet::close(file);
  if (line == nullptr) return length == 0 ? -1 : 0;  // a kernel that has none
  return line[10] != '0';
}

/// The same by a call that itself may be filtered.
bool filter_by_prctl() noexcept {
  const int mode = ::prctl(PR_GET_SECCOMP);
  return mode > 0 || (mode < 0 && errno != EINVAL);
}

int look() noexcept {
  const int kept = errno;
  int known = state.load(std::memory_order_acquire);
  if (known == kUnknown) {
    const int said = filter_in_status();
    const bool filter = said < 0 ? filter_by_prctl() : said != 0;
    const int found = !filter ? kOpen : trusted.load(std::memory_order_relaxed) ? kTrusted : kFromStart;
    if (state.compare_exchange_strong(known, found, std::memory_order_acq_rel)) known = found;
  } else if (known == kOpen && filter_by_prctl()) {  // entered past prctl()
    state.store(known = kEntered, std::memory_order_release);
  }
  errno = kept;
  return known;
}

}  // namespace

bool may_call_all() noexcept {
  const int known = look();
  return known == kOpen || known == kTrusted;
}

bool may_open_files() noexcept { return look() != kEntered; }

bool may_start_thread(bool seen) noexcept {
  const int known = look();
  return known == kOpen || known == kTrusted || (known == kFromStart && seen);
}

void trust_filter_at_start() noexcept { trusted.store(true, std::memory_order_relaxed); }

// PR_SET_NO_NEW_PRIVS comes before a filter wherever the program is not root; seccomp() itself has no
// function of the C library that could be noted.
NotedPrctl::NotedPrctl(int option) noexcept
    : enters_(option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) {
  if (enters_) before_ = state.exchange(kEntered, std::memory_order_acq_rel);
}

void NotedPrctl::done(bool well) const noexcept {
  if (enters_ && !well) state.store(before_, std::memory_order_release);
}

}  // namespace memoir::host_control
