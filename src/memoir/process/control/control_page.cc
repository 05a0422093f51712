// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/control/control_page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memoir/base/files.h"
#include "memoir/process/control/quiet_calls.h"

namespace memoir::host_control {

constinit ControlPage control_page;
std::uint32_t answered = 1;

namespace {

// Of the file, for the process that opened it.
char path[1100];
char made[96];  // its folder, where that was made for this file alone
dev_t device = 0;
ino_t inode = 0;
void* image = nullptr;
Size image_size = 0;

/// A folder that is the user's own, and nobody else's to write.
bool is_private(const char* folder) noexcept {
  struct stat status {};
  return ::lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 077) == 0;
}

/// A limit on the size of files: growing one over it ends the program by a signal.
bool may_grow_to(Size size) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size);
}

int create(const char* folder, bool keep) noexcept {
  const auto process = static_cast<int>(::getpid());
  for (unsigned number = 1; number < 1000; ++number) {
    const int length = number == 1 ? snprintf(path, sizeof path, "%s/%d", folder, process)
                                   : snprintf(path, sizeof path, "%s/%d.%u", folder, process, number);
    if (length < 0 || static_cast<size_t>(length) >= sizeof path) return -1;
    // What is left of a process that had the same number, or of an earlier program of this one.
    if (!keep) ::unlink(path);
    const int file = quiet::open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

/// The user's folder in /dev/shm. Where somebody else made one of that name first, one for this process
/// alone, of a name that nobody can have guessed; it goes away with the file.
const char* own_folder(char (&own)[64]) noexcept {
  snprintf(own, sizeof own, "/dev/shm/memoir-%u", static_cast<unsigned>(::geteuid()));
  made[0] = '\0';
  if (::mkdir(own, 0700) == 0 || is_private(own)) return own;
  char fresh[kFreshName];
  fresh_name(fresh);
  snprintf(made, sizeof made, "%s%s", own, fresh + 7);
  if (::mkdir(made, 0700) == 0) return made;
  made[0] = '\0';
  return own;
}

void remove_made() noexcept {
  if (made[0] != '\0') ::rmdir(made);
  made[0] = '\0';
}

void unmap_image() noexcept {
  if (image != nullptr) ::munmap(image, image_size);
  image = nullptr;
}

}  // namespace

bool open_control(const char* folder, bool keep) noexcept {
  const int kept = errno;
  char own[64];
  if (folder == nullptr) folder = own_folder(own);
  bool done = false;
  path[0] = '\0';
  if (is_private(folder) && may_grow_to(Size{1} << 30) && ::sysconf(_SC_PAGESIZE) == 4096) {
    const int file = create(folder, keep);
    struct stat status {};
    if (file >= 0) {
      done = quiet::allocate(file, 0, sizeof(ControlPage)) && ::fstat(file, &status) == 0 &&
             ::mmap(&control_page, sizeof control_page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                    0) != MAP_FAILED;
      quiet::close(file);
      if (!done) ::unlink(path);
    }
    if (done) {
      device = status.st_dev;
      inode = status.st_ino;
      const ssize_t length =
          ::readlink("/proc/self/exe", control_page.program, sizeof control_page.program - 1);
      control_page.program[length > 0 ? length : 0] = '\0';
      control_page.version = kVersion;
      control_page.process = static_cast<std::uint32_t>(::getpid());
      control_page.asked.store(1, std::memory_order_relaxed);
      answered = 1;
      control_page.magic.store(kMagic, std::memory_order_release);
    }
  }
  if (!done) {
    path[0] = '\0';
    remove_made();
  }
  errno = kept;
  return done;
}

void leave_control() noexcept {
  const int kept = errno;
  ::mmap(&control_page, sizeof control_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
         -1, 0);
  unmap_image();
  control_page.asked.store(1, std::memory_order_relaxed);
  answered = 1;
  path[0] = made[0] = '\0';
  errno = kept;
}

void remove_control() noexcept {
  const int kept = errno;
  if (path[0] != '\0') {
    ::unlink(path);
    remove_made();
  }
  errno = kept;
}

/// The file may be another one by now; a program may have closed all that is open, so that it is not kept.
static int open_again() noexcept {
  if (path[0] == '\0') return -1;
  const int file = quiet::open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || (::fstat(file, &status) == 0 && status.st_dev == device && status.st_ino == inode))
    return file;
  quiet::close(file);
  return -1;
}

void* map_image(Size size) noexcept {
  if (image != nullptr) return image_size == size ? image : nullptr;
  const int file = open_again();
  if (file < 0) return nullptr;
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file,
                               static_cast<off_t>(kImageBegin));
  quiet::close(file);
  if (address == MAP_FAILED) return nullptr;
  image = address;
  image_size = size;
  return image;
}

bool take_image(void*, Size begin, Size end) noexcept {
  if (!may_grow_to(kImageBegin + end)) return false;
  const int file = open_again();
  if (file < 0) return false;
  const bool done =
      quiet::allocate(file, static_cast<off_t>(kImageBegin + begin), static_cast<off_t>(end - begin));
  quiet::close(file);
  return done;
}

}  // namespace memoir::host_control
