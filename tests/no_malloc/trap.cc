// SPDX-License-Identifier: Apache-2.0
#include "no_malloc/trap.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* pointer, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* pointer);
}

namespace memoir::trap {

namespace {

constexpr int kMostFrames = 64;
constexpr const char* kExempt = "libfake_cuda.so";

thread_local int forbidden = 0;
thread_local bool looking = false;  // at a stack, which may itself allocate the first time
std::atomic<std::uint64_t> call_count = 0;

bool is_exempt(void* const* frames, int count) noexcept {
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) != 0 && std::strstr(info.dli_fname, kExempt) != nullptr) return true;
  }
  return false;
}

void say(const char* text) noexcept { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

void note(const char* function) noexcept {
  call_count.fetch_add(1, std::memory_order_relaxed);
  if (forbidden == 0 || looking) [[likely]]
    return;
  looking = true;
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  if (!is_exempt(frames, count)) {
    say(function);
    say(" was called where memoir promises not to:\n");
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
    std::abort();
  }
  looking = false;
}

}  // namespace

NoMalloc::NoMalloc() noexcept {
  // The first stack loads a library, which allocates.
  static const bool warm = [] {
    void* frame;
    return backtrace(&frame, 1) >= 0;
  }();
  (void)warm;
  ++forbidden;
}

NoMalloc::~NoMalloc() { --forbidden; }

std::uint64_t calls() noexcept { return call_count.load(std::memory_order_relaxed); }

}  // namespace memoir::trap

// Seen by all libraries of the program: libstdc++'s operators, which call these, as well.
#pragma GCC visibility push(default)
using memoir::trap::note;
extern "C" {
void* malloc(std::size_t size) {
  note("malloc");
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  note("calloc");
  return __libc_calloc(count, size);
}
void* realloc(void* pointer, std::size_t size) {
  note("realloc");
  return __libc_realloc(pointer, size);
}
void free(void* pointer) {
  if (pointer == nullptr) return;
  note("free");
  __libc_free(pointer);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  note("aligned_alloc");
  return __libc_memalign(alignment, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  note("memalign");
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** pointer, std::size_t alignment, std::size_t size) {
  note("posix_memalign");
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *pointer = memory;
  return 0;
}
void* valloc(std::size_t size) {
  note("valloc");
  return __libc_memalign(static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), size);
}
void* pvalloc(std::size_t size) {
  note("pvalloc");
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return __libc_memalign(page, (size + page - 1) / page * page);
}
}
#pragma GCC visibility pop
