// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/give_back.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "memoir/base/metadata.h"
#include "memoir/process/control/sandbox.h"

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

namespace memoir::malloc_ {

namespace {

std::atomic<bool> takes_lists{true}, took_list{false};

/// Whether madvise() is the system's call and nothing else: neither another library's function nor changed
/// code.
bool nobody_looks() noexcept {
#if defined(__x86_64__)
  int (*const volatile called)(void*, size_t, int) = ::madvise;
  static constexpr unsigned char kMark[] = {0xf3, 0x0f, 0x1e, 0xfa};                  // endbr64
  static constexpr unsigned char kCall[] = {0xb8, SYS_madvise, 0, 0, 0, 0x0f, 0x05};  // mov eax; syscall
  const auto* code = reinterpret_cast<const unsigned char*>(called);
  if (std::memcmp(code, kMark, sizeof kMark) == 0) code += sizeof kMark;
  return std::memcmp(code, kCall, sizeof kCall) == 0;
#else
  return false;
#endif
}

/// All at once. False: nothing is known of any of them.
bool leave_together(const iovec* ranges, size_t count) noexcept {
  constexpr int kThisProcess = -10001;  // PIDFD_SELF_THREAD_GROUP
  if (count < 2 || !takes_lists.load(std::memory_order_relaxed) || !nobody_looks() ||
      !host_control::may_call_all() || !gives_zero_pages())
    return false;
  Size bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += ranges[i].iov_len;
  const long done = ::syscall(SYS_process_madvise, kThisProcess, ranges, count, MADV_DONTNEED, 0);
  // Of a kernel that has taken a list, EINVAL means locked memory.
  if (done > 0) took_list.store(true, std::memory_order_relaxed);
  else if (done < 0 && errno != EINTR && errno != EAGAIN && errno != ENOMEM &&
           !(errno == EINVAL && took_list.load(std::memory_order_relaxed)))
    takes_lists.store(false, std::memory_order_relaxed);
  return done >= 0 && static_cast<Size>(done) == bytes;
}

}  // namespace

bool give_back(const iovec* ranges, size_t count, bool* gone) noexcept {
  const int kept = errno;
  const bool together = leave_together(ranges, count);
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    gone[i] = together || give_pages_back(ranges[i].iov_base, ranges[i].iov_len);
    any |= gone[i];
  }
  errno = kept;
  return any;
}

}  // namespace memoir::malloc_
