// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/store_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

namespace {

enum Barriers : int { kUnknown, kGiven, kRefused };
std::atomic<int> barriers{kUnknown};

bool membarrier(int command) noexcept {
  const int kept = errno;
  const bool done = syscall(SYS_membarrier, command, 0, 0) == 0;
  errno = kept;
  return done;
}

/// False where there are none, from the first refusal on.
bool barrier_on_every_thread() noexcept {
  const int known = barriers.load(std::memory_order_relaxed);
  if (known == kRefused || !host_control::may_call_all()) return false;
  const bool registered = known == kGiven || membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  const bool done = registered && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  barriers.store(done ? kGiven : kRefused, std::memory_order_relaxed);
  return done;
}

}  // namespace

void until_stores_are_seen(const Lock* lock) noexcept {
  if (barrier_on_every_thread()) return;
  constexpr int kSteps = 20;
  constexpr std::uint64_t kStep = 50'000;  // nanoseconds
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < kSteps && (lock == nullptr || !lock->is_wanted()); ++i) pass_time(kStep);
}

void forget_barriers() noexcept { barriers.store(kUnknown, std::memory_order_relaxed); }

}  // namespace memoir::malloc_
