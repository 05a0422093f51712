// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/metadata.h"

#include <sys/mman.h>

#include <cstdint>

namespace memoir {

namespace {
constexpr Size kPage = 4 * kKiB;
}

void* map_metadata(Size size) noexcept {
  if (size == 0 || size > (Size{1} << 62)) return nullptr;
  void* address =
      ::mmap(nullptr, align_up(size, kPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void unmap_metadata(void* address, Size size) noexcept {
  if (address != nullptr) ::munmap(address, align_up(size, kPage));
}

void* remap_metadata(void* address, Size old_size, Size new_size) noexcept {
  if (new_size > (Size{1} << 62)) return nullptr;
  void* moved = ::mremap(address, align_up(old_size, kPage), align_up(new_size, kPage), MREMAP_MAYMOVE);
  return moved == MAP_FAILED ? nullptr : moved;
}

void forget_metadata(void* address, Size size) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Size begin = align_up(at, kPage), end = align_down(at + size, kPage);
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace memoir
