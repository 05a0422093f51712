// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/give_back.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "memoir/base/units.h"

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

namespace memoir::malloc_ {

namespace {

constexpr int kThisProcess = -10001;  // PIDFD_SELF_THREAD_GROUP
std::atomic<bool> lists{true};        // the kernel takes them

/// All at once. False: nothing is known of any of them.
bool give_back_together(const iovec* ranges, size_t count) noexcept {
  // A program that lists the system calls it may make, such as a sandbox, may not know this one.
  if (count < 2 || !lists.load(std::memory_order_relaxed) || ::prctl(PR_GET_SECCOMP) != 0) return false;
  Size bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += ranges[i].iov_len;
  const long done = ::syscall(SYS_process_madvise, kThisProcess, ranges, count, MADV_DONTNEED, 0);
  if (done < 0 && errno != EINTR && errno != EAGAIN && errno != ENOMEM)
    lists.store(false, std::memory_order_relaxed);
  return done >= 0 && static_cast<Size>(done) == bytes;
}

}  // namespace

void give_back(const iovec* ranges, size_t count, bool* gone) noexcept {
  const int kept = errno;
  const bool together = give_back_together(ranges, count);
  for (size_t i = 0; i < count; ++i) {
    // Not MADV_FREE: the bytes would count as the program's until the system runs short of memory.
    gone[i] = together || ::madvise(ranges[i].iov_base, ranges[i].iov_len, MADV_DONTNEED) == 0;
  }
  errno = kept;
}

}  // namespace memoir::malloc_
