// SPDX-License-Identifier: Apache-2.0
//
// What a program calls to give up rights. A forked child has no trace until it first allocates; where it
// gives up the right to make one, that begins right before (a child that only calls exec has none). Where it
// forbids itself system calls, the recorder makes none any more: it goes on in memory that was set aside,
// then it counts what it loses.
#include <errno.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "memoir/base/system_calls.h"
#include "memoir/record/preload/control.h"
#include "memoir/record/preload/process.h"
#include "memoir/record/preload/real.h"

#if !defined(__clang__)  // which does not know the warning
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

using namespace memoir::record;

namespace {

/// Before a call that takes rights away. True when system calls are forbidden from now on.
bool before_filter() noexcept {
  settle();
  // A child of vfork() shares this memory: what it may call is its own matter.
  if (!memoir::may_call_system() || !process.is_own()) return false;
  const int kept = errno;
  if (mode() == Mode::kEverything && own_record() != nullptr) recorder.confine();
  errno = kept;
  memoir::system_calls_are_forbidden.store(true, std::memory_order_relaxed);
  return true;
}

long after_filter(bool forbade, long result) noexcept {
  if (forbade && result < 0) memoir::system_calls_are_forbidden.store(false, std::memory_order_relaxed);
  return result;
}

}  // namespace

// A function of the C library by its own name: settles, then goes on.
#define MEMOIR_BEFORE(name, declared, passed) \
  MEMOIR_EXPORT int name declared {           \
    settle();                                 \
    return real.name passed;                  \
  }
MEMOIR_BEFORE(chroot, (const char* path), (path))
MEMOIR_BEFORE(unshare, (int flags), (flags))
MEMOIR_BEFORE(setns, (int file, int kind), (file, kind))
MEMOIR_BEFORE(setuid, (uid_t user), (user))
MEMOIR_BEFORE(setgid, (gid_t group), (group))
MEMOIR_BEFORE(seteuid, (uid_t user), (user))
MEMOIR_BEFORE(setegid, (gid_t group), (group))
MEMOIR_BEFORE(setreuid, (uid_t real_one, uid_t effective), (real_one, effective))
MEMOIR_BEFORE(setregid, (gid_t real_one, gid_t effective), (real_one, effective))
MEMOIR_BEFORE(setresuid, (uid_t real_one, uid_t effective, uid_t saved), (real_one, effective, saved))
MEMOIR_BEFORE(setresgid, (gid_t real_one, gid_t effective, gid_t saved), (real_one, effective, saved))

MEMOIR_EXPORT int prctl(int what, ...) {
  va_list rest;
  va_start(rest, what);
  const unsigned long one = va_arg(rest, unsigned long), two = va_arg(rest, unsigned long);
  const unsigned long three = va_arg(rest, unsigned long), four = va_arg(rest, unsigned long);
  va_end(rest);
  const bool forbids = what == PR_SET_SECCOMP && before_filter();
  return static_cast<int>(after_filter(forbids, ::syscall(SYS_prctl, what, one, two, three, four)));
}

// syscall() may be anything, also a clone() that returns on another stack: it stays the C library's sequence,
// without a frame. Only seccomp(2) makes a stop here.
extern "C" __attribute__((visibility("hidden"), used)) long memoir_filter(long mode, long flags,
                                                                          void* filter) {
  const bool forbids =
      (mode == SECCOMP_SET_MODE_STRICT || mode == SECCOMP_SET_MODE_FILTER) && before_filter();
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(SYS_seccomp), "D"(mode), "S"(flags), "d"(filter)
                   : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    result = -1;
  }
  return after_filter(forbids, result);
}
extern "C" __attribute__((visibility("hidden"), used)) long memoir_refused(long result) {
  errno = static_cast<int>(-result);
  return -1;
}
__asm__(
    ".text\n"
    ".globl syscall\n"
    ".type syscall, @function\n"
    "syscall:\n"
    "  .cfi_startproc\n"
    "  endbr64\n"
    "  cmpq $317, %rdi\n"  // SYS_seccomp
    "  je 1f\n"
    "  movq %rdi, %rax\n"
    "  movq %rsi, %rdi\n"
    "  movq %rdx, %rsi\n"
    "  movq %rcx, %rdx\n"
    "  movq %r8, %r10\n"
    "  movq %r9, %r8\n"
    "  movq 8(%rsp), %r9\n"
    "  syscall\n"
    "  cmpq $-4095, %rax\n"
    "  jae 2f\n"
    "  ret\n"
    "1: movq %rsi, %rdi\n"
    "  movq %rdx, %rsi\n"
    "  movq %rcx, %rdx\n"
    "  jmp memoir_filter\n"
    "2: movq %rax, %rdi\n"
    "  jmp memoir_refused\n"
    "  .cfi_endproc\n"
    ".size syscall, .-syscall\n");
