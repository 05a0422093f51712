// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/blocks/address_map.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include <cstring>

#include "memoir/base/site.h"
#include "memoir/malloc/blocks/free_list.h"

namespace memoir::malloc_ {

namespace {

constexpr Size kAlignment = 2 * kMiB;
constexpr Size kPage = 4 * kKiB;
constexpr int kTries = 16;

bool reserved = false;  // all addresses are ours; else they are mapped as the arena grows
Size back_committed = 0;

bool make_usable(std::uintptr_t address, Size size) noexcept {
  void* const at = reinterpret_cast<void*>(address);
  if (reserved) return ::mprotect(at, size, PROT_READ | PROT_WRITE) == 0;
  void* const got = ::mmap(at, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == at) return true;
  if (got != MAP_FAILED) ::munmap(got, size);  // a kernel that does not know the flag
  return false;
}

/// Where the kernel would not give us all addresses, its random bytes pick a place far from what it maps
/// itself.
std::uintptr_t random_base(int attempt) noexcept {
  std::uint64_t seed = 0;
  if (const auto* bytes = reinterpret_cast<const void*>(::getauxval(AT_RANDOM)))
    std::memcpy(&seed, bytes, sizeof seed);
  constexpr std::uintptr_t kLow = std::uintptr_t{16} << 40, kSpread = std::uintptr_t{64} << 40;
  return kLow + memoir::detail::mix(seed + 0x9e3779b97f4a7c15ull * (attempt + 1)) % (kSpread / kAlignment) *
                    kAlignment;
}

}  // namespace

bool choose_addresses() noexcept {
  // The kernel's choice is random only where the program has not switched that off.
  constexpr Size kSpread = kChecked ? 64 * kGiB : kAlignment;
  constexpr Size kTotal = kSpanBytes + kBackBytes + kArenaCapacity;
  void* const all =
      ::mmap(nullptr, kTotal + kSpread, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all != MAP_FAILED) {
    reserved = true;
    auto begin = reinterpret_cast<std::uintptr_t>(all);
    if constexpr (kChecked) begin += free_list::keys.shift % (kSpread / kAlignment) * kAlignment;
    arena_base.store(align_up(begin + kSpanBytes + kBackBytes, kAlignment), std::memory_order_release);
    return true;
  }
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::uintptr_t base = random_base(attempt);
    // One page, to see that nobody is there.
    void* const probe = ::mmap(reinterpret_cast<void*>(base), kPage, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (probe == MAP_FAILED) continue;
    ::munmap(probe, kPage);
    if (probe != reinterpret_cast<void*>(base)) continue;
    arena_base.store(base, std::memory_order_release);
    return true;
  }
  return false;
}

bool commit_addresses(Offset from, Size size) noexcept {
  if (from + size > kArenaCapacity) return false;
  const size_t first = from / size_classes::kSlot, slots = size / size_classes::kSlot;
  // A page of `back` serves 16 regions.
  const Size back_end = align_up(first + slots, kPage);
  if (back_end > back_committed) {
    if (!make_usable(base() - kBackBytes + back_committed, back_end - back_committed)) return false;
    back_committed = back_end;
  }
  if (!make_usable(reinterpret_cast<std::uintptr_t>(span_at(first)), slots * sizeof(Span))) return false;
  if (make_usable(base() + from, size)) {
    if constexpr (kChecked) arena_committed.store(from + size, std::memory_order_relaxed);
    return true;
  }
  if (!reserved) ::munmap(span_at(first), slots * sizeof(Span));  // so that a smaller piece can be asked for
  return false;
}

}  // namespace memoir::malloc_
