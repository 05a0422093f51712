// SPDX-License-Identifier: Apache-2.0
//
// The functions behind ours: those that the program would have called without us, be they the C library's or
// another malloc's. Before they are known, and while they are looked up (which may allocate), a small fixed
// memory serves.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace memoir::record {

struct Real {
  void* (*malloc)(size_t);
  void (*free)(void*);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  size_t (*malloc_usable_size)(void*);
  void* (*dlopen)(const char*, int);
  int (*dlclose)(void*);
  int (*execve)(const char*, char* const*, char* const*);
  int (*execvpe)(const char*, char* const*, char* const*);
  int (*fexecve)(int, char* const*, char* const*);
  void (*exit_now)(int) __attribute__((noreturn));
  int (*brk)(void*);
  void* (*sbrk)(intptr_t);
  int (*chroot)(const char*);
  int (*unshare)(int);
  int (*setns)(int, int);
  int (*setuid)(uid_t);
  int (*setgid)(gid_t);
  int (*seteuid)(uid_t);
  int (*setegid)(gid_t);
  int (*setreuid)(uid_t, uid_t);
  int (*setregid)(gid_t, gid_t);
  int (*setresuid)(uid_t, uid_t, uid_t);
  int (*setresgid)(gid_t, gid_t, gid_t);
};

/// Filled in by find_real(); until then its functions are those of the fixed memory.
extern __attribute__((visibility("hidden"))) Real real;

/// Looks all of them up, once. False while another call is at it (in this thread, or another one).
bool find_real() noexcept;
inline constexpr size_t kEarlyMemory = 64 * 1024;
extern __attribute__((visibility("hidden"))) char early_memory[kEarlyMemory];
/// Whether a block is of the fixed memory, which is never given back.
inline bool is_early(const void* block) noexcept {
  return reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(early_memory) < kEarlyMemory;
}
/// A block of the fixed memory moved to a real one.
void* leave_early(void* block, size_t size) noexcept;

}  // namespace memoir::record
