// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>

#include "memoir/base/pause.h"

namespace memoir {

namespace {

constexpr int kSpins = 100;

// errno is the program's: a lock that waits must not change it. 0, or what went wrong.
int futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
          const timespec* timeout) noexcept {
  const int kept = errno;
  const long result = syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
  const int problem = result < 0 ? errno : 0;
  errno = kept;
  return problem;
}

// Of the one thread that forks.
constexpr size_t kMostLent = 8;
const Lock* lent[kMostLent];
size_t lent_count = 0;

}  // namespace

bool return_lent(const Lock* lock) noexcept {
  if (forking_thread.load(std::memory_order_relaxed) != current_thread()) return false;
  if (lent_count == 0 || lent[lent_count - 1] != lock) return false;
  --lent_count;
  return true;
}

void Lock::lock_slowly() noexcept {
  if (lent_count < kMostLent && forking_thread.load(std::memory_order_relaxed) == current_thread()) {
    lent[lent_count++] = this;
    return;
  }
  for (int spin = 0; spin < kSpins; ++spin) {
    std::uint32_t free = 0;
    if (state_.load(std::memory_order_relaxed) == 0 &&
        state_.compare_exchange_strong(free, 1, std::memory_order_acquire))
      return;
    pause_processor();
  }
  while (state_.exchange(2, std::memory_order_acquire) != 0) futex(&state_, FUTEX_WAIT, 2, nullptr);
}

void Lock::wake() noexcept { futex(&state_, FUTEX_WAKE, 1, nullptr); }

bool sleep_on(std::atomic<std::uint32_t>* word, std::uint32_t value, std::uint64_t nanoseconds) noexcept {
  const timespec timeout{static_cast<time_t>(nanoseconds / 1000000000),
                         static_cast<long>(nanoseconds % 1000000000)};
  const int problem = futex(word, FUTEX_WAIT, value, nanoseconds == 0 ? nullptr : &timeout);
  return problem == 0 || problem == EAGAIN || problem == EINTR || problem == ETIMEDOUT;
}

void pass_time(std::uint64_t nanoseconds) noexcept {
  std::atomic<std::uint32_t> nobody{0};
  sleep_on(&nobody, 0, nanoseconds);
}

void wake_all(std::atomic<std::uint32_t>* word) noexcept { futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace memoir
