// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace memoir {

void check_failed(const char* condition, const char* what, const char* file, int line) noexcept {
  char text[512];
  const int length =
      std::snprintf(text, sizeof text, "memoir: %s:%d: %s (%s does not hold)\n", file, line, what, condition);
  if (length > 0) {
    const auto count =
        static_cast<size_t>(length) < sizeof text ? static_cast<size_t>(length) : sizeof text - 1;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, count);
  }
  std::abort();
}

}  // namespace memoir
