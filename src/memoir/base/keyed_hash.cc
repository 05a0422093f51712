// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/keyed_hash.h"

#include <sys/random.h>
#include <time.h>

namespace memoir {

std::uint64_t hash_key() noexcept {
  static const std::uint64_t key = [] {
    std::uint64_t drawn = 0;
    if (::getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) == sizeof drawn) return drawn;
    timespec now;  // before the system has random numbers: what an attacker of a file does not know either
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return detail::mix(static_cast<std::uint64_t>(now.tv_nsec) ^ reinterpret_cast<std::uintptr_t>(&drawn));
  }();
  return key;
}

}  // namespace memoir
