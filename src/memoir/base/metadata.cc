// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/metadata.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace memoir {

namespace {

constexpr Size kPage = 4 * kKiB;

// Mappings of a few pages that were given back, for those who ask next: small tables come and go with every
// plan, and writing zeros is cheaper than two system calls and page faults. 320 KiB at most.
constexpr size_t kKeptPages = 4, kKeptEach = 8;
constinit std::atomic<void*> g_kept[kKeptPages][kKeptEach];

void* take_kept(size_t pages) noexcept {
  for (auto& kept : g_kept[pages - 1]) {
    if (kept.load(std::memory_order_relaxed) == nullptr) continue;
    if (void* const address = kept.exchange(nullptr, std::memory_order_acquire)) return address;
  }
  return nullptr;
}

bool keep(void* address, size_t pages) noexcept {
  for (auto& kept : g_kept[pages - 1]) {
    void* nothing = nullptr;
    if (kept.compare_exchange_strong(nothing, address, std::memory_order_release, std::memory_order_relaxed))
      return true;
  }
  return false;
}

}  // namespace

void* map_metadata(Size size) noexcept {
  if (size == 0 || size > (Size{1} << 62)) return nullptr;
  if (size <= kKeptPages * kPage) {
    if (void* const kept = take_kept(align_up(size, kPage) / kPage))
      return std::memset(kept, 0, align_up(size, kPage));
  }
  void* address =
      ::mmap(nullptr, align_up(size, kPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void unmap_metadata(void* address, Size size) noexcept {
  if (address == nullptr) return;
  if (size != 0 && size <= kKeptPages * kPage && keep(address, align_up(size, kPage) / kPage)) return;
  ::munmap(address, align_up(size, kPage));
}

void* remap_metadata(void* address, Size old_size, Size new_size) noexcept {
  if (new_size > (Size{1} << 62)) return nullptr;
  const Size old = align_up(old_size, kPage), wanted = align_up(new_size, kPage);
  if (void* const moved = ::mremap(address, old, wanted, MREMAP_MAYMOVE); moved != MAP_FAILED) return moved;
  // A filter of system calls may refuse that, and a process with too many mappings: then it is copied.
  void* const fresh = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return nullptr;
  std::memcpy(fresh, address, old < wanted ? old : wanted);
  ::munmap(address, old);
  return fresh;
}

namespace {

enum Answer : int { kUnknown, kYes, kNo };
std::atomic<int> clears{kUnknown};

// Not MADV_FREE: the bytes would count as the program's until the system runs short of memory.
bool leaves(void* begin, size_t size) noexcept {
  int result;
  do {
    result = ::madvise(begin, size, MADV_DONTNEED);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

void forget_metadata(void* address, Size size) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Size begin = align_up(at, kPage), end = align_down(at + size, kPage);
  if (begin >= end) return;
  auto* const pages = reinterpret_cast<void*>(begin);
  if (!give_pages_back(pages, end - begin)) std::memset(pages, 0, end - begin);
}

bool gives_zero_pages() noexcept {
  if (const int known = clears.load(std::memory_order_relaxed); known != kUnknown) return known == kYes;
  constexpr Size kRoom = 128 * kKiB;  // has a whole page of any size
  void* const room = map_metadata(kRoom);
  if (room == nullptr) return true;
  auto* const byte = static_cast<volatile char*>(room);
  *byte = 1;
  // Where a page is larger than 4 KiB, the rest of it would leave too.
  if (::madvise(static_cast<char*>(room) + 4 * kKiB, 4 * kKiB, MADV_NORMAL) != 0 && errno == EINVAL)
    clears.store(kNo, std::memory_order_relaxed);
  else if (leaves(room, kRoom)) clears.store(*byte == 0 ? kYes : kNo, std::memory_order_relaxed);
  unmap_metadata(room, kRoom);
  return clears.load(std::memory_order_relaxed) != kNo;
}

bool give_pages_back(void* begin, Size size) noexcept { return gives_zero_pages() && leaves(begin, size); }

}  // namespace memoir
