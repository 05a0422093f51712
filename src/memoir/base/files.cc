// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace memoir {

namespace {

constexpr unsigned kOwn = 0600;  // the rights of a new file

/// A file of that name in an open folder. A call that a signal interrupts is made again.
int open_at(int folder, const char* name, int flags) noexcept {
  long file;
  do file = ::syscall(SYS_openat, folder, name, flags | O_CLOEXEC | O_NOCTTY, kOwn);
  while (file < 0 && errno == EINTR);
  return static_cast<int>(file);
}

/// The file, if it is a regular one; else it is closed.
int regular(int file) noexcept {
  struct stat status {};
  if (file < 0) return -1;
  int why = EINVAL;
  if (::fstat(file, &status) != 0) why = errno;
  else if (S_ISREG(status.st_mode)) return file;
  close_file(file);
  errno = why;
  return -1;
}

}  // namespace

Folder::Folder(const char* path) noexcept {
  constexpr int kFlags = O_PATH | O_DIRECTORY;
  const char* const slash = strrchr(path, '/');
  name_ = slash == nullptr ? path : slash + 1;
  if (slash == nullptr) {
    folder_ = open_at(AT_FDCWD, ".", kFlags);
    return;
  }
  char folder[4096];
  const auto length =
      static_cast<std::size_t>(slash - path) + 1;  // with the slash: the root has no other name
  folder_ = -1;
  if (length >= sizeof folder) {
    errno = ENAMETOOLONG;
    return;
  }
  memcpy(folder, path, length);
  folder[length] = '\0';
  folder_ = open_at(AT_FDCWD, folder, kFlags);
}

Folder::~Folder() {
  if (folder_ >= 0) close_file(folder_);
}

int Folder::create(const char* name) const noexcept {
  if (folder_ < 0) return -1;
  return open_at(folder_, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
}

int Folder::create_nameless() const noexcept {
  if (folder_ < 0) return -1;
  return open_at(folder_, ".", O_RDWR | O_TMPFILE);
}

int Folder::open(const char* name, int flags) const noexcept {
  if (folder_ < 0) return -1;
  return regular(open_at(folder_, name, flags | O_NOFOLLOW | O_NONBLOCK));
}

bool Folder::give_name(int nameless, const char* name) const noexcept {
  char own[40] = "/proc/self/fd/";
  char digits[12];
  unsigned count = 0;
  for (auto rest = static_cast<unsigned>(nameless); count == 0 || rest != 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  char* end = own + 14;
  while (count > 0) *end++ = digits[--count];
  *end = '\0';
  return ::linkat(AT_FDCWD, own, folder_, name, AT_SYMLINK_FOLLOW) == 0;
}

bool Folder::rename(const char* name, const char* to) const noexcept {
  return ::renameat(folder_, name, folder_, to) == 0;
}

void Folder::remove(const char* name) const noexcept {
  const int kept = errno;
  ::unlinkat(folder_, name, 0);
  errno = kept;
}

int create_file(const char* path) noexcept {
  const Folder folder(path);
  return folder.create(folder.name());
}

int open_beside(const char* path, int flags) noexcept {
  const Folder folder(path);
  return folder.open(folder.name(), flags);
}

int open_to_read(const char* path) noexcept {
  return regular(open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK));
}

void close_file(int file) noexcept {
  const int kept = errno;
  ::syscall(SYS_close, file);
  errno = kept;
}

void fresh_name(char (&name)[kFreshName]) noexcept {
  constexpr unsigned kNonblock = 1;  // GRND_NONBLOCK: early in a boot there are no random numbers yet
  std::uint64_t bits = 0;
  if (::syscall(SYS_getrandom, &bits, sizeof bits, kNonblock) != static_cast<long>(sizeof bits)) {
    // That it is new is held by create(); that it is not guessed is not, then.
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    bits = (static_cast<std::uint64_t>(now.tv_nsec) << 32 ^ static_cast<std::uint64_t>(::getpid())) *
           0x9e3779b97f4a7c15u;
  }
  memcpy(name, ".memoir-", 8);
  for (int i = 0; i < 16; ++i) name[8 + i] = "0123456789abcdef"[bits >> (4 * i) & 15];
  name[kFreshName - 1] = '\0';
}

}  // namespace memoir
