// SPDX-License-Identifier: Apache-2.0
#include "memoir/record/preload/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace memoir::record {

alignas(64) char early_memory[kEarlyMemory];

namespace {

constexpr size_t kEarly = kEarlyMemory;
char* const early = early_memory;
std::atomic<size_t> early_used{0};

/// With its size in front of each block.
void* early_aligned(size_t alignment, size_t size) noexcept {
  if (alignment < 16) alignment = 16;
  if (size > kEarly || alignment > kEarly) {
    errno = ENOMEM;
    return nullptr;
  }
  const size_t taken = size + alignment + 16;
  const size_t from = early_used.fetch_add(taken, std::memory_order_relaxed);
  if (from + taken > kEarly) {
    errno = ENOMEM;
    return nullptr;
  }
  const auto at = (reinterpret_cast<uintptr_t>(early + from) + 16 + alignment - 1) & ~(alignment - 1);
  memcpy(reinterpret_cast<void*>(at - sizeof size), &size, sizeof size);
  return reinterpret_cast<void*>(at);
}
size_t early_size(const void* block) noexcept {
  size_t size;
  memcpy(&size, static_cast<const char*>(block) - sizeof size, sizeof size);
  return size;
}
void* early_malloc(size_t size) { return early_aligned(16, size); }
void early_free(void*) {}
void* early_calloc(size_t count, size_t size) {  // the memory is zero, and used once
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? nullptr : early_aligned(16, bytes);
}
void* early_realloc(void* block, size_t size) {
  void* const moved = early_aligned(16, size);
  if (moved != nullptr && block != nullptr && is_early(block)) {
    const size_t old = early_size(block);
    memcpy(moved, block, old < size ? old : size);
  }
  return moved;
}
int early_posix_memalign(void** result, size_t alignment, size_t size) {
  void* const block = early_aligned(alignment, size);
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}
void* early_page(size_t size) { return early_aligned(4096, size); }
size_t early_usable_size(void* block) { return block == nullptr ? 0 : early_size(block); }
void* early_dlopen(const char*, int) { return nullptr; }
int early_dlclose(void*) { return 0; }
int early_exec(const char*, char* const*, char* const*) {
  errno = EAGAIN;
  return -1;
}
int early_fexecve(int, char* const*, char* const*) {
  errno = EAGAIN;
  return -1;
}
// [[noreturn]] is no part of a function's type, as the pointer in Real wants it.
__attribute__((noreturn)) void early_exit(int status) {
  for (;;) ::syscall(SYS_exit_group, status);
}
int early_brk(void*) { return -1; }
template <class... Arguments>
int early_call(Arguments...) {
  errno = EAGAIN;
  return -1;
}
void* early_sbrk(intptr_t) { return reinterpret_cast<void*>(-1); }

template <class Function>
void look_up(Function& function, const char* name) noexcept {
  if (void* const found = dlsym(RTLD_NEXT, name)) function = reinterpret_cast<Function>(found);
}

std::atomic<int> finding{0};  // 0 not yet, 1 under way, 2 done

}  // namespace

Real real = {early_malloc,         early_free, early_calloc,  early_realloc,     early_aligned, early_aligned,
             early_posix_memalign, early_page, early_page,    early_usable_size, early_dlopen,  early_dlclose,
             early_exec,           early_exec, early_fexecve, early_exit,        early_brk,     early_sbrk,
             early_call,           early_call, early_call,    early_call,        early_call,    early_call,
             early_call,           early_call, early_call,    early_call,        early_call};

void* leave_early(void* block, size_t size) noexcept {
  void* const moved = real.malloc(size);
  if (moved != nullptr) {
    const size_t old = early_size(block);
    memcpy(moved, block, old < size ? old : size);
  }
  return moved;
}

bool find_real() noexcept {
  int state = finding.load(std::memory_order_acquire);
  if (state == 2) return true;
  if (state == 1 || !finding.compare_exchange_strong(state, 1, std::memory_order_acq_rel)) return false;
  Real found = real;
  look_up(found.malloc, "malloc");
  look_up(found.free, "free");
  look_up(found.calloc, "calloc");
  look_up(found.realloc, "realloc");
  look_up(found.memalign, "memalign");
  look_up(found.aligned_alloc, "aligned_alloc");
  look_up(found.posix_memalign, "posix_memalign");
  look_up(found.valloc, "valloc");
  look_up(found.pvalloc, "pvalloc");
  look_up(found.malloc_usable_size, "malloc_usable_size");
  look_up(found.dlopen, "dlopen");
  look_up(found.dlclose, "dlclose");
  look_up(found.execve, "execve");
  look_up(found.execvpe, "execvpe");
  look_up(found.fexecve, "fexecve");
  look_up(found.exit_now, "_exit");
  look_up(found.brk, "brk");
  look_up(found.sbrk, "sbrk");
  look_up(found.chroot, "chroot");
  look_up(found.unshare, "unshare");
  look_up(found.setns, "setns");
  look_up(found.setuid, "setuid");
  look_up(found.setgid, "setgid");
  look_up(found.seteuid, "seteuid");
  look_up(found.setegid, "setegid");
  look_up(found.setreuid, "setreuid");
  look_up(found.setregid, "setregid");
  look_up(found.setresuid, "setresuid");
  look_up(found.setresgid, "setresgid");
  real = found;
  finding.store(2, std::memory_order_release);
  return true;
}

}  // namespace memoir::record
