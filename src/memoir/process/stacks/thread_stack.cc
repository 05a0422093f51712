// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/thread_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "memoir/base/system_calls.h"

extern "C" __attribute__((weak)) void* __libc_stack_end;  // where the main thread's stack began

namespace memoir::stacks {

namespace {

/// What the ioctl PROCMAP_QUERY takes and fills, since Linux 6.11; the headers of older systems lack it.
struct MapQuery {
  std::uint64_t size = sizeof(MapQuery);
  std::uint64_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t begin = 0, end = 0, rights = 0;
  std::uint64_t page_size = 0, offset = 0, inode = 0;
  std::uint32_t device[2] = {};
  std::uint32_t name_size = 0, id_size = 0;
  std::uint64_t name = 0, id = 0;
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned long kQueryMap = _IOWR('f', 17, MapQuery);
constexpr std::uint64_t kMayRun = 4;

/// Takes lines like "7f10c0000000-7f10c0800000 rw-p 00000000 00:00 0    /usr/lib/x.so", a byte at a time.
class MapLine {
 public:
  MapLine(Address inside, char* name, std::size_t room) noexcept
      : inside_(inside), name_(name), room_(room) {}

  Mapping found;

  /// True at the end of the line that was looked for.
  bool take(char c) noexcept {
    if (c == '\n') {
      if (found.end != 0) {
        if (length_ + 1 == room_) name_[0] = '\0';
        return true;
      }
      part_ = 0;
      numbers_[0] = numbers_[1] = 0;
      return false;
    }
    if (part_ < 2) {
      if (c != '-' && c != ' ') {
        const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
        numbers_[part_] = numbers_[part_] << 4 | static_cast<unsigned>(digit);
      } else if (++part_ == 2 && inside_ >= numbers_[0] && inside_ < numbers_[1]) {
        found.begin = numbers_[0];
        found.end = numbers_[1];
        length_ = 0;
      }
      return false;
    }
    if (found.end == 0) return false;
    if (part_ == 2 && c == 'x') found.can_run = true;
    if (c == ' ' && part_ < 6) {
      ++part_;  // rights, offset, device, inode; then spaces, and the name
    } else if (part_ == 6 && room_ != 0 && (length_ != 0 || c != ' ')) {
      name_[length_] = c;
      if (length_ + 1 < room_) ++length_;
      name_[length_] = '\0';
    }
    return false;
  }

 private:
  Address inside_;
  char* name_;
  std::size_t room_, length_ = 0;
  Address numbers_[2] = {0, 0};
  unsigned part_ = 0;  // of a line: 0 and 1 are numbers
};

}  // namespace

Mapping find_mapping(Address inside, bool ask, char* name, std::size_t room) noexcept {
  if (room != 0) name[0] = '\0';
  if (!may_call_system()) return {};
  const auto file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (file < 0) return {};
  MapQuery query;
  query.address = inside;
  query.name = reinterpret_cast<std::uintptr_t>(name);
  query.name_size = static_cast<std::uint32_t>(room);
  if (ask && ::syscall(SYS_ioctl, file, kQueryMap, &query) == 0) {
    ::syscall(SYS_close, file);
    if (room != 0 && query.name_size == 0) name[0] = '\0';
    return {{query.begin, query.end}, (query.rights & kMayRun) != 0};
  }
  char text[512];  // in parts: stacks may be small
  MapLine line(inside, name, room);
  for (bool done = false; !done;) {
    const auto count = ::syscall(SYS_read, file, text, sizeof text);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    for (long i = 0; i < count && !done; ++i) done = line.take(text[i]);
  }
  ::syscall(SYS_close, file);
  return line.found;
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
  const Mapping mapping = find_mapping(end);
  errno = kept;
  return {mapping.begin, mapping.end == 0 ? 0 : end};
}

Address pointer_above_frames(Address slot) noexcept {
  constexpr Address kMost = Address{1} << 20;
  const Address distance = reinterpret_cast<Address>(__builtin_thread_pointer()) - slot;
  return distance < kMost ? distance : 0;
}

}  // namespace memoir::stacks
