// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/stacks/thread_stack.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" __attribute__((weak)) void* __libc_stack_end;  // where the main thread's stack began

namespace memoir::stacks {

ThreadStack find_thread_stack() noexcept {
  if (&__libc_stack_end != nullptr && __libc_stack_end != nullptr && ::getpid() == ::syscall(SYS_gettid)) {
    // The kernel keeps this much free below the stack, whatever the limit says.
    constexpr Address kLeast = Address{128} << 20, kMost = Address{1} << 40;
    rlimit limit{};
    Address size = kLeast;
    if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur > kLeast && limit.rlim_cur < kMost)
      size = limit.rlim_cur;
    const auto end = reinterpret_cast<Address>(__libc_stack_end);
    return {end - size, end};
  }
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return {};
  void* begin = nullptr;
  size_t size = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &begin, &size) == 0;
  ::pthread_attr_destroy(&attributes);
  if (!known) return {};
  return {reinterpret_cast<Address>(begin), reinterpret_cast<Address>(begin) + size};
}

}  // namespace memoir::stacks
