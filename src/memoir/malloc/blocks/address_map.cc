// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/address_map.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "memoir/base/site.h"
#include "memoir/malloc/blocks/free_list.h"

namespace memoir::malloc_ {

namespace {

constexpr Size kAlignment = 2 * kMiB;
constexpr Size kPage = 4 * kKiB;
constexpr int kTries = 16;

Size back_mapped = 0;

Growth map_at(std::uintptr_t address, Size size) noexcept {
  void* const at = reinterpret_cast<void*>(address);
  void* const got = ::mmap(at, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == at) return Growth::kDone;
  if (got == MAP_FAILED) return errno == EEXIST ? Growth::kGap : Growth::kRefused;
  ::munmap(got, size);  // a kernel that does not know the flag: somebody has these addresses
  return Growth::kGap;
}

/// Records for what the arena grows by.
bool map_records(size_t first, size_t slots) noexcept {
  // A page of `back` serves 16 regions.
  const Size back_end = align_up(first + slots, kPage);
  if (back_end > back_mapped) {
    if (map_at(base() - kBackBytes + back_mapped, back_end - back_mapped) != Growth::kDone) return false;
    back_mapped = back_end;
  }
  return map_at(reinterpret_cast<std::uintptr_t>(span_at(first)), slots * sizeof(Span)) == Growth::kDone;
}

/// Where no kernel maps anything by itself: below the stacks and libraries and above programs that lie low.
struct Addresses {
  std::uintptr_t low, spread;
};
constexpr Addresses kPlaces[] = {
#if !defined(__SANITIZE_THREAD__)  // which allows the low TiB only
    {17 * kTiB, 8 * kTiB},         // of 128 TiB and more; what the address sanitizer needs lies below
#endif
    {136 * kGiB, 64 * kGiB},  // of 512 GiB: some ARM kernels
};

/// Random bytes of the kernel pick the place; of two copies of this library in a process, two places.
std::uintptr_t random_base(const Addresses& among, std::uint64_t attempt) noexcept {
  std::uint64_t seed = reinterpret_cast<std::uintptr_t>(&back_mapped);
  if (const auto* bytes = reinterpret_cast<const void*>(::getauxval(AT_RANDOM))) {
    std::uint64_t kernels = 0;
    std::memcpy(&kernels, bytes, sizeof kernels);
    seed ^= kernels;
  }
  if constexpr (kChecked) seed = free_list::keys.shift;
  return among.low + memoir::detail::mix(seed + 0x9e3779b97f4a7c15ull * (attempt + 1)) %
                         (among.spread / kAlignment) * kAlignment;
}

}  // namespace

bool choose_addresses() noexcept {
  for (const Addresses& among : kPlaces) {
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const std::uintptr_t base = random_base(among, static_cast<std::uint64_t>(attempt));
      if (map_at(base, kPage) != Growth::kDone) continue;  // to see that nobody is there
      ::munmap(reinterpret_cast<void*>(base), kPage);
      arena_bounds.base.store(base, std::memory_order_release);
      return true;
    }
  }
  return false;
}

Growth grow_addresses(Size size) noexcept {
  const Offset from = arena_size();
  if (from + size > kArenaCapacity) return Growth::kRefused;
  const size_t first = from / size_classes::kSlot, slots = size / size_classes::kSlot;
  if (!map_records(first, slots)) return Growth::kRefused;
  const Growth grown = map_at(base() + from, size);
  if (grown == Growth::kRefused) {
    ::munmap(span_at(first), slots * sizeof(Span));  // so that a smaller piece can be asked for
  } else {
    arena_bounds.size.store(from + size, std::memory_order_relaxed);  // who gets a block from there sees it
  }
  return grown;
}

bool give_addresses_back(Offset from, Size size) noexcept { return ::munmap(address_of(from), size) == 0; }

Growth take_addresses_again(Offset from, Size size) noexcept { return map_at(base() + from, size); }

}  // namespace memoir::malloc_
