// SPDX-License-Identifier: Apache-2.0
//
// MEMOIR_CHECK(condition, "what must hold"): for a programmer's mistake only, never for a bad file or a full
// machine. It writes one line with write(2) and aborts: no malloc, no streams, usable inside an allocator.
#pragma once

namespace memoir {

[[noreturn]] void check_failed(const char* condition, const char* what, const char* file, int line) noexcept;

}  // namespace memoir

#define MEMOIR_CHECK(condition, what)                               \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::memoir::check_failed(#condition, what, __FILE__, __LINE__); \
  } while (false)
