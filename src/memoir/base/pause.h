// SPDX-License-Identifier: Apache-2.0
//
// What a thread says to its processor while it waits for another one in a loop: spend less, let the
// neighbour on this core run. Not a system call; nothing happens on processors that have no such word.
#pragma once

namespace memoir {

inline void pause_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace memoir
