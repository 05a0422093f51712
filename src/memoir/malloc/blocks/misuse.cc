// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/misuse.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace memoir::malloc_ {

namespace {

[[noreturn]] void say_and_abort(const char* line, int length) noexcept {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
  std::abort();
}

}  // namespace

[[gnu::cold, gnu::noinline]] void misused(const char* call, const void* block, const char* what) noexcept {
  char line[160];
  say_and_abort(line, std::snprintf(line, sizeof line, "memoir: %s(%p): %s\n", call, block, what));
}

[[gnu::cold, gnu::noinline]] void damaged(const void* block) noexcept {
  char line[160];
  say_and_abort(line,
                std::snprintf(line, sizeof line,
                              "memoir: block %p: written to while it was free, or freed twice\n", block));
}

}  // namespace memoir::malloc_
