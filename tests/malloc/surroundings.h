/* SPDX-License-Identifier: Apache-2.0
 *
 * Where servers run: what a program finds around itself, by name.
 *
 *   refuse=madvise          EPERM for the call; also refuse=madvise+mremap, absent=... (ENOSYS), kill=...
 *   lock                    mlockall, what is there and what will be
 *   as=512, data=512        MiB of address space, of data; stack=KiB; threads=N of this user, who is then
 *                           not root
 *   hide=/proc              an empty folder there
 */
#ifndef MEMOIR_TESTS_SURROUNDINGS_H
#define MEMOIR_TESTS_SURROUNDINGS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000U
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

/* "cpu_clock" is clock_gettime() of the clocks that are no part of the vDSO. */
enum { kCpuClock = -2 };

static const struct {
  const char* name;
  int number;
} surrounding_calls[] = {
#define CALL(name) \
  { #name, SYS_##name }
    CALL(brk),
    CALL(munmap),
    CALL(mremap),
    CALL(mprotect),
    CALL(madvise),
    CALL(mincore),
    CALL(futex),
    CALL(membarrier),
    CALL(process_madvise),
    CALL(clone),
    CALL(clone3),
    CALL(prctl),
    CALL(openat),
    CALL(read),
    CALL(close),
    CALL(getpid),
    CALL(gettid),
    CALL(sched_yield),
    CALL(nanosleep),
    CALL(clock_nanosleep),
    CALL(rt_sigprocmask),
    CALL(sched_getaffinity),
    CALL(process_vm_readv),
    CALL(pread64),
    CALL(getrandom),
    CALL(prlimit64),
    CALL(sysinfo),
    CALL(readlink),
    CALL(fstat),
    CALL(newfstatat),
    CALL(rseq),
    CALL(set_robust_list),
    CALL(clock_gettime),
    {"cpu_clock", kCpuClock},
#undef CALL
};

static inline int surrounding_number(const char* name, size_t length) {
  for (size_t i = 0; i < sizeof surrounding_calls / sizeof *surrounding_calls; ++i) {
    if (strlen(surrounding_calls[i].name) == length && memcmp(surrounding_calls[i].name, name, length) == 0)
      return surrounding_calls[i].number;
  }
  fprintf(stderr, "surroundings.h knows no call '%.*s'\n", (int)length, name);
  exit(2);
}

/* A filter that answers these calls ("madvise+mremap") so, and lets all others through. */
static inline void surrounding_filter(const char* calls, unsigned answer) {
  struct sock_filter code[160];
  unsigned short n = 0;
#define STATEMENT(...) code[n++] = (struct sock_filter)BPF_STMT(__VA_ARGS__)
#define JUMP(...) code[n++] = (struct sock_filter)BPF_JUMP(__VA_ARGS__)
  for (const char* at = calls; *at != 0;) {
    const size_t length = strcspn(at, "+");
    const int number = surrounding_number(at, length);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    if (number == kCpuClock) { /* clocks 2, 3 and the negative ones */
      JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 5);
      STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
      JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x80000000u, 2, 0);
      JUMP(BPF_JMP | BPF_JEQ | BPF_K, 2, 1, 0);
      JUMP(BPF_JMP | BPF_JEQ | BPF_K, 3, 0, 1);
    } else {
      JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
    }
    STATEMENT(BPF_RET | BPF_K, answer);
    at += length + (at[length] == '+');
  }
  STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
#undef STATEMENT
#undef JUMP
  struct sock_fprog program = {n, code};
  /* For every thread that there is. */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    perror("seccomp");
    exit(2);
  }
}

static inline void surrounding_limit(int which, unsigned long bytes) {
  const struct rlimit limit = {bytes, bytes};
  if (setrlimit(which, &limit) != 0) {
    perror("setrlimit");
    exit(2);
  }
}

/* From now on the process is there. Ends it with 2 where that cannot be. */
static inline void surround(const char* where) {
  const char* const value = strchr(where, '=') == NULL ? "" : strchr(where, '=') + 1;
  const unsigned long number = strtoul(value, NULL, 10);
  if (strncmp(where, "refuse=", 7) == 0) surrounding_filter(value, SECCOMP_RET_ERRNO | EPERM);
  else if (strncmp(where, "absent=", 7) == 0) surrounding_filter(value, SECCOMP_RET_ERRNO | ENOSYS);
  else if (strncmp(where, "kill=", 5) == 0) surrounding_filter(value, SECCOMP_RET_KILL_PROCESS);
  else if (strncmp(where, "as=", 3) == 0) surrounding_limit(RLIMIT_AS, number << 20);
  else if (strncmp(where, "data=", 5) == 0) surrounding_limit(RLIMIT_DATA, number << 20);
  else if (strncmp(where, "stack=", 6) == 0) surrounding_limit(RLIMIT_STACK, number << 10);
  else if (strncmp(where, "threads=", 8) == 0) {
    if (geteuid() == 0 && setresuid(54321, 54321, 54321) != 0) {
      perror("setresuid");
      exit(2);
    }
    surrounding_limit(RLIMIT_NPROC, number);
  } else if (strncmp(where, "hide=", 5) == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", value, "tmpfs", 0, "size=4k") != 0) {
      perror(where);
      exit(2);
    }
  } else if (strcmp(where, "lock") == 0) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
      perror("mlockall");
      exit(2);
    }
  } else {
    fprintf(stderr, "surroundings.h knows no '%s'\n", where);
    exit(2);
  }
}

#endif
