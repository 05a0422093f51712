// SPDX-License-Identifier: Apache-2.0
// Forked children that give up rights before they first allocate; what each does is its argument.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/// Only what malloc and the end of a program need; anything else kills.
static int filter(int by_prctl) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_brk, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_munmap, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                  : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static int give_up(const char* what) {
  if (strcmp(what, "prctl") == 0) return filter(1);
  if (strcmp(what, "seccomp") == 0) return filter(0);
  if (strcmp(what, "refused") == 0)
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT ? 0 : -1;
  if (strcmp(what, "chroot") == 0) return chroot("/proc/self/fd") != 0 || chdir("/") != 0;
  if (strcmp(what, "setuid") == 0) {
    for (int i = 3; i < 1024; ++i) close(i);
    return setgid(65534) != 0 || setuid(65534) != 0;
  }
  return unshare(CLONE_NEWNS);
}

int main(int count, char** arguments) {
  const char* what = arguments[count - 1];
  free(malloc(100));  // what malloc itself asks at its first call is not the child's
  if (fork() == 0) {
    if (give_up(what) != 0) _exit(77);
    for (int i = 0; i < 200000; ++i) {
      void* block = malloc(200);
      __asm__ volatile("" : "+r"(block));
    }
    _exit(3);
  }
  int status = 0;
  wait(&status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
