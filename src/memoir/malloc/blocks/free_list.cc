// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/free_list.h"

#if defined(MEMOIR_MALLOC_SECURE)

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "memoir/base/site.h"

namespace memoir::malloc_::free_list {

namespace {

/// For systems without random bytes so early: those that the kernel gave the process, the clock and where the
/// stack lies.
void make_up(std::uint64_t* words, size_t count) noexcept {
  std::uint64_t state = reinterpret_cast<std::uintptr_t>(&state);
  if (const auto* bytes = reinterpret_cast<const void*>(::getauxval(AT_RANDOM))) {
    std::uint64_t kernels = 0;
    std::memcpy(&kernels, bytes, sizeof kernels);
    state ^= kernels;
  }
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  state ^= static_cast<std::uint64_t>(now.tv_nsec) << 20;
  for (size_t i = 0; i < count; ++i) words[i] = memoir::detail::mix(state += 0x9e3779b97f4a7c15ull);
}

}  // namespace

void choose_keys() noexcept {
  const int kept = errno;
  std::uint64_t random[3] = {};
  if (::getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) make_up(random, 3);
  keys.link = random[0];
  keys.mark = random[1];
  keys.shift = random[2];
  static_assert(sizeof(Keys) == 4096);
  ::mprotect(&keys, sizeof keys, PROT_READ);  // where pages are larger the keys stay writable
  errno = kept;
}

void* link_shuffled(char* begin, Size size, size_t count) noexcept {
  // A random start and a random stride. Primes above 256 have no divisor in common with the count, so that
  // every block's turn comes.
  static constexpr std::uint16_t kPrimes[32] = {257, 263, 269, 271, 277, 281, 283, 293, 307, 311, 313,
                                                317, 331, 337, 347, 349, 353, 359, 367, 373, 379, 383,
                                                389, 397, 401, 409, 419, 421, 431, 433, 439, 443};
  static std::atomic<std::uint64_t> batches{0};
  const std::uint64_t batch = batches.load(std::memory_order_relaxed);
  batches.store(batch + 1, std::memory_order_relaxed);  // of threads that meet here, one counts
  const std::uint64_t random = memoir::detail::mix(keys.shift + batch * 0x9e3779b97f4a7c15ull +
                                                   reinterpret_cast<std::uintptr_t>(begin));
  const size_t stride = kPrimes[random >> 59] % count;
  size_t at = (random & 0xffffffff) * count >> 32;
  void* list = nullptr;
  for (size_t i = 0; i < count; ++i) {
    void* const block = begin + at * size;
    link(block, list);
    list = block;
    at += stride;
    if (at >= count) at -= count;
  }
  return list;
}

}  // namespace memoir::malloc_::free_list

#endif
