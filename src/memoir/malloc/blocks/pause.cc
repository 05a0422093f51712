// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/pause.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace memoir::malloc_ {

namespace {
std::atomic<bool> possible{false};

long membarrier(int command) noexcept {
  const int kept = errno;
  const long result = syscall(SYS_membarrier, command, 0, 0);
  errno = kept;
  return result;
}
}  // namespace

void prepare_pauses() noexcept {
  possible.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0, std::memory_order_relaxed);
}

bool pauses_possible() noexcept { return possible.load(std::memory_order_relaxed); }

void barrier_on_every_thread() noexcept { membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

}  // namespace memoir::malloc_
