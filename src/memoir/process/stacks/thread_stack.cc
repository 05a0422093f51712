// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/thread_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

extern "C" __attribute__((weak)) void* __libc_stack_end;  // where the main thread's stack began

namespace memoir::stacks {

namespace {

/// What the ioctl PROCMAP_QUERY takes and fills, since Linux 6.11; the headers of older systems lack it.
struct MapQuery {
  std::uint64_t size = sizeof(MapQuery);
  std::uint64_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t begin = 0, end = 0;
  std::uint64_t rest[8] = {};  // no name, no build id is wanted
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned long kQueryMap = _IOWR('f', 17, MapQuery);

}  // namespace

ThreadStack find_mapping(Address inside, bool ask) noexcept {
  const auto file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (file < 0) return {};
  MapQuery query;
  query.address = inside;
  if (ask && ::syscall(SYS_ioctl, file, kQueryMap, &query) == 0) {
    ::syscall(SYS_close, file);
    return {query.begin, query.end};
  }
  // Lines like "7f10c0000000-7f10c0800000 rw-p 00000000 00:00 0", in parts: stacks may be small.
  char text[512];
  Address numbers[2] = {0, 0};
  unsigned part = 0;  // of a line: 0 and 1 are numbers, 2 is the rest
  ThreadStack found;
  while (found.end == 0) {
    const auto count = ::syscall(SYS_read, file, text, sizeof text);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    for (long i = 0; i < count; ++i) {
      const char c = text[i];
      if (c == '\n') {
        numbers[0] = numbers[1] = part = 0;
      } else if (part < 2 && (c == '-' || c == ' ')) {
        ++part;
        if (part == 2 && inside >= numbers[0] && inside < numbers[1]) {
          found = {numbers[0], numbers[1]};
          break;
        }
      } else if (part < 2) {
        numbers[part] = numbers[part] << 4 | static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
      }
    }
  }
  ::syscall(SYS_close, file);
  return found;
}

ThreadStack find_thread_stack() noexcept {
  if (&__libc_stack_end != nullptr && __libc_stack_end != nullptr && ::getpid() == ::syscall(SYS_gettid)) {
    // The kernel keeps this much free below the stack, whatever the limit says.
    constexpr Address kLeast = Address{128} << 20, kMost = Address{1} << 40;
    rlimit limit{};
    Address size = kLeast;
    if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur > kLeast && limit.rlim_cur < kMost)
      size = limit.rlim_cur;
    const auto end = reinterpret_cast<Address>(__libc_stack_end);
    return {end - size, end};
  }
  // What a thread is known by lies at the end of its stack; what is mapped behind may be another's.
  const auto end = reinterpret_cast<Address>(__builtin_thread_pointer());
  const int kept = errno;
  const ThreadStack mapping = find_mapping(end);
  errno = kept;
  return {mapping.begin, mapping.end == 0 ? 0 : end};
}

Address pointer_above_frames(Address slot) noexcept {
  constexpr Address kMost = Address{1} << 20;
  const Address distance = reinterpret_cast<Address>(__builtin_thread_pointer()) - slot;
  return distance < kMost ? distance : 0;
}

}  // namespace memoir::stacks
