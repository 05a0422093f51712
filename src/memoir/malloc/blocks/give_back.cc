// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/give_back.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>

#include "memoir/base/metadata.h"

namespace memoir::malloc_ {

namespace {

enum Answer : int { kUnknown, kYes, kNo };
std::atomic<int> clears{kUnknown};

// Not MADV_FREE: the bytes would count as the program's until the system runs short of memory.
bool leaves(void* begin, size_t size) noexcept {
  int result;
  do {
    result = ::madvise(begin, size, MADV_DONTNEED);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

/// Whether pages that went read as zeros. Emulators and sandboxes take madvise() for the hint that POSIX says
/// it is. Tried on a page of our own, until the system has taken one.
bool clears_pages() noexcept {
  if (const int known = clears.load(std::memory_order_relaxed); known != kUnknown) return known == kYes;
  constexpr Size kRoom = 128 * kKiB;  // has a whole page of any size
  void* const room = map_metadata(kRoom);
  if (room == nullptr) return true;
  auto* const byte = static_cast<volatile char*>(room);
  *byte = 1;
  if (leaves(room, kRoom)) clears.store(*byte == 0 ? kYes : kNo, std::memory_order_relaxed);
  unmap_metadata(room, kRoom);
  return clears.load(std::memory_order_relaxed) != kNo;
}

}  // namespace

bool give_back(const iovec* ranges, size_t count, bool* gone) noexcept {
  const int kept = errno;
  const bool clear = count != 0 && clears_pages();
  bool any = false;
  for (size_t i = 0; i < count; ++i) any |= gone[i] = clear && leaves(ranges[i].iov_base, ranges[i].iov_len);
  errno = kept;
  return any;
}

}  // namespace memoir::malloc_
