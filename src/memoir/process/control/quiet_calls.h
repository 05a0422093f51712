// SPDX-License-Identifier: Apache-2.0
//
// System calls without cancellation points: a thread that is cancelled must not end inside malloc, with a
// lock of ours. As the C library's otherwise.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace memoir::host_control::quiet {

inline int open(const char* path, int flags, unsigned mode = 0) noexcept {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
inline void close(int file) noexcept { ::syscall(SYS_close, file); }
inline ssize_t read(int file, void* to, size_t size) noexcept { return ::syscall(SYS_read, file, to, size); }
inline ssize_t read_at(int file, void* to, size_t size, off_t at) noexcept {
  return ::syscall(SYS_pread64, file, to, size, at);
}
/// Puts memory behind a stretch of the file.
inline bool allocate(int file, off_t begin, off_t size) noexcept {
  return ::syscall(SYS_fallocate, file, 0, begin, size) == 0;
}

}  // namespace memoir::host_control::quiet
