// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "memoir/base/files.h"
#include "memoir/base/pause.h"
#include "memoir/base/system_calls.h"
#include "memoir/trace/format.h"

namespace memoir::record {

namespace {

using trace_format::kClockMonotonic, trace_format::kEndianness, trace_format::kVersion;

// readers look no further than 4 MiB for the next block
constexpr Size kFirstStep = 256 * kKiB, kStep = 2 * kMiB;

char zeros[64 * kKiB];  // not const, which would have them lie in the library's file

/// A descriptor out of the way of those that programs count on, closed by exec.
int moved_up(int file) noexcept {
  constexpr int kLeast = 700;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return file;
  const int least = limit.rlim_cur > kLeast + 8 ? kLeast : static_cast<int>(limit.rlim_cur / 2);
  const int high = ::fcntl(file, F_DUPFD_CLOEXEC, least);
  if (high < 0) return file;
  ::close(file);
  return high;
}

}  // namespace

/// Without a name at first, so that it appears with its header; where that cannot be (no /proc), with one.
bool TraceFile::create(const char* path, std::uint64_t start, std::uint32_t tick) noexcept {
  return create_as(path, start, tick, false) || (errno != EEXIST && create_as(path, start, tick, true));
}

bool TraceFile::create_as(const char* path, std::uint64_t start, std::uint32_t tick, bool named) noexcept {
  if (strlen(path) >= sizeof path_) {
    errno = ENAMETOOLONG;
    return false;
  }
  const Folder folder(path);
  int file = named ? folder.create(folder.name()) : folder.create_nameless();
  if (file < 0) return false;
  file = moved_up(file);
  const auto give_up = [&] {
    const int why = errno;
    if (header_ != nullptr) ::munmap(header_, kPage);
    header_ = nullptr;
    ::close(file);
    if (named && why != EEXIST) folder.remove(folder.name());
    errno = why;
    return false;
  };
  struct stat status {};
  if (::fstat(file, &status) != 0) return give_up();
  device_ = status.st_dev;
  inode_ = status.st_ino;
  allocated_ = 0;
  if (!grow(file, kPage)) {
    if (errno == 0) errno = ENOSPC;
    return give_up();
  }
  void* const mapped = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return give_up();
  header_ = static_cast<FileHeader*>(mapped);
  FileHeader fresh{};
  memcpy(fresh.magic, "\x89memoirT", 8);
  fresh.version = kVersion;
  fresh.endianness = kEndianness;
  fresh.header_size = sizeof fresh;
  fresh.tick = tick;
  fresh.clock = kClockMonotonic;
  fresh.start = start;
  memcpy(header_, &fresh, sizeof fresh);
  if (!named && !folder.give_name(file, folder.name())) return give_up();
  memcpy(path_, path, strlen(path) + 1);
  claimed_ = kPage;
  file_ = file;
  return true;
}

void TraceFile::abandon() noexcept {
  if (header_ != nullptr) ::munmap(header_, kPage);
  if (descriptor() >= 0) ::close(file_);
  header_ = nullptr;
  file_ = -1;
  claimed_ = allocated_ = 0;
  aside_ = nullptr;
  aside_size_ = 0;
  aside_used_.store(0, std::memory_order_relaxed);
  locked_.store(false, std::memory_order_relaxed);
  is_stuck_.store(false, std::memory_order_relaxed);
}

/// The file, if the program has not closed it meanwhile; else opened again. -1 when it cannot be.
int TraceFile::descriptor() noexcept {
  struct stat status {};
  const auto ours = [&](int file) {
    return file >= 0 && ::fstat(file, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
  };
  if (ours(file_)) return file_;
  file_ = -1;
  if (path_[0] == '\0') return -1;
  const int again = open_beside(path_, O_RDWR);
  if (again < 0) return -1;
  if (!ours(again)) {
    ::close(again);
    return -1;
  }
  return file_ = moved_up(again);
}

/// Allocates at least up to `least` bytes of the file. False with errno.
bool TraceFile::grow(int file, Size least) noexcept {
  const Size step = allocated_ < 8 * kStep ? kFirstStep : kStep;
  Size wanted = align_up(least, step);
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    // One byte more, and the kernel would send SIGXFSZ to the program.
    const Size most = limit.rlim_cur & ~(kPage - 1);
    if (wanted > most) wanted = most;
    if (wanted < least) {
      errno = EFBIG;
      return false;
    }
  }
  const auto from = static_cast<off_t>(allocated_), size = static_cast<off_t>(wanted - allocated_);
  int failed;
  // libc's own may end the thread here, by pthread_cancel()
  const auto allocate = [&](off_t bytes) {
    return ::syscall(SYS_fallocate, file, 0, from, bytes) == 0 ? 0 : errno;
  };
  do failed = allocate(size);
  while (failed == EINTR);
  if (failed == EOPNOTSUPP || failed == ENOSYS) {
    // Such a file system allocates what is written.
    failed = 0;
    for (Size at = allocated_; at < wanted && failed == 0; at += kPage)
      if (::pwrite(file, zeros, kPage, static_cast<off_t>(at)) != static_cast<ssize_t>(kPage))
        failed = errno == 0 ? ENOSPC : errno;
  }
  if (failed != 0 && wanted > least) {  // the last room that there is
    const auto rest = static_cast<off_t>(least - allocated_);
    failed = rest == 0 ? 0 : allocate(rest);
    wanted = least;
  }
  errno = failed;
  if (failed == 0) allocated_ = wanted;
  return failed == 0;
}

/// Writes zeros where zeros stand: on a disk the kernel then prepares all pages at once, at a third of what
/// it costs to prepare each when it is first touched (ext4: 20 us instead of 65 for a block of 64 KiB).
void TraceFile::prepare(int file, Size begin, Size size) noexcept {
  for (Size at = 0; at < size; at += sizeof zeros)
    ::syscall(SYS_pwrite64, file, zeros, size - at < sizeof zeros ? size - at : sizeof zeros,
              static_cast<off_t>(begin + at));
}

/// False when the thread that holds the lock was ended there, or jumped out of it: events are lost then, no
/// more. On a busy machine that thread may only wait for a processor or the disk, so others wait for seconds.
/// But the program stands still for so long only once: after a wait in vain they give up at once.
bool TraceFile::lock() noexcept {
  constexpr unsigned kSpins = 64, kYields = 256, kSleeps = 10'000;
  const unsigned most = kSpins + kYields + (is_stuck_.load(std::memory_order_relaxed) ? 0 : kSleeps);
  for (unsigned tries = 0; locked_.exchange(true, std::memory_order_acquire); ++tries) {
    if (tries == most) {
      is_stuck_.store(true, std::memory_order_relaxed);
      return false;
    }
    if (tries < kSpins) {
      pause_processor();
    } else if (tries < kSpins + kYields) {
      ::sched_yield();
    } else {
      const timespec wait{.tv_sec = 0, .tv_nsec = 1'000'000};
      ::syscall(SYS_nanosleep, &wait, nullptr);  // libc's may end the thread here, by pthread_cancel()
    }
  }
  is_stuck_.store(false, std::memory_order_relaxed);
  return true;
}

std::byte* TraceFile::claim(Size size) noexcept {
  if (header_ == nullptr) return nullptr;
  if (!may_call_system()) {
    const Size at = aside_used_.fetch_add(size, std::memory_order_relaxed);
    return at + size <= aside_size_ ? aside_ + at : nullptr;
  }
  const int kept = errno;
  if (!lock()) return nullptr;
  std::byte* block = nullptr;
  const int file = descriptor();
  if (file >= 0 && (claimed_ + size <= allocated_ || grow(file, claimed_ + size))) {
    prepare(file, claimed_, size);
    void* const mapped =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(claimed_));
    if (mapped != MAP_FAILED) {
      claimed_ += size;
      block = static_cast<std::byte*>(mapped);
    }
  }
  locked_.store(false, std::memory_order_release);
#ifdef MADV_POPULATE_WRITE
  if (block != nullptr) ::madvise(block, size, MADV_POPULATE_WRITE);
#endif
  errno = kept;
  return block;
}

void TraceFile::set_aside(Size size) noexcept {
  if (aside_ != nullptr) return;
  aside_ = claim(size);
  aside_size_ = aside_ == nullptr ? 0 : size;
}

void TraceFile::trim() noexcept {
  if (header_ == nullptr || locked_.exchange(true, std::memory_order_acquire)) return;
  const int file = descriptor();
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(claimed_)) == 0) allocated_ = claimed_;
  locked_.store(false, std::memory_order_release);
}

void TraceFile::unmap(std::byte* block, Size size) noexcept {
  if (block != nullptr) ::munmap(block, size);
}

}  // namespace memoir::record
