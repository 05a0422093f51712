/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that stands for the registration caches of UCX, libfabric and Open MPI: it looks at what leaves
 * by the C library's madvise(), and says at the end how many bytes it saw. It stands in front of the function
 * by its name, or with -DPATCH writes a jump over the function's first bytes, as theirs do. Written for this
 * project.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_ulong seen;

static int look(void* at, size_t size, int advice) {
  const long result = syscall(SYS_madvise, at, size, advice);
  if (result == 0 && (advice == MADV_DONTNEED || advice == MADV_FREE)) atomic_fetch_add(&seen, size);
  return (int)result;
}

#ifdef PATCH
__attribute__((constructor)) static void patch(void) {
  unsigned char* code = dlsym(RTLD_NEXT, "madvise");
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, look; jmp rax */
  const uintptr_t to = (uintptr_t)look, page = (uintptr_t)code & ~(uintptr_t)4095;
  memcpy(jump + 2, &to, sizeof to);
  if (code == NULL || mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    perror("patch");
    _exit(2);
  }
  memcpy(code, jump, sizeof jump);
}
#else
int madvise(void* at, size_t size, int advice) { return look(at, size, advice); }
#endif

__attribute__((destructor)) static void tell(void) {
  fprintf(stderr, "seen %.1f MiB leave\n", (double)seen / (1 << 20));
}
