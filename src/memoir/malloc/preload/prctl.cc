// SPDX-License-Identifier: Apache-2.0
//
// prctl(), by which programs enter filters of system calls (process/control/sandbox.h).
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "memoir/process/control/sandbox.h"

namespace {

using Prctl = int(int, ...);
std::atomic<Prctl*> next{nullptr};

/// In an archive the program's own functions are the C library's.
Prctl* find_next() {
#if defined(MEMOIR_MALLOC_SHARED)
  Prctl* found = next.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = reinterpret_cast<Prctl*>(dlsym(RTLD_NEXT, "prctl"));
    next.store(found, std::memory_order_release);
  }
  return found;
#else
  return nullptr;
#endif
}

}  // namespace

extern "C" __attribute__((visibility("default"), used, noinline)) int prctl(int option, ...) {
  va_list words;
  va_start(words, option);
  unsigned long values[4];
  for (unsigned long& value : values) value = va_arg(words, unsigned long);
  va_end(words);
  Prctl* const go_on = find_next();
  const memoir::host_control::NotedPrctl noted(option);
  const int result =
      go_on != nullptr
          ? go_on(option, values[0], values[1], values[2], values[3])
          : static_cast<int>(syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]));
  noted.done(result >= 0);
  return result;
}
