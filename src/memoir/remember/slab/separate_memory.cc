// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/separate_memory.h"

#include <new>

#include "memoir/arena/host_arena.h"

namespace memoir {

SeparateMemory& SeparateMemory::instance() noexcept {
  alignas(SeparateMemory) static std::byte
      storage[sizeof(SeparateMemory)];  // never destroyed, as its objects may not be
  static SeparateMemory* const memory = new (storage) SeparateMemory;
  return *memory;
}

void* SeparateMemory::allocate(Size size) noexcept {
  auto& space = AddressSpace::instance();
  std::byte* const base = space.reserve(size, this);
  if (base == nullptr) return nullptr;
  if (!open_pages(base, size, {.huge_pages = true})) {
    space.release(base);
    return nullptr;
  }
  return base;
}

void SeparateMemory::free_from_elsewhere(void* pointer) noexcept {
  auto& space = AddressSpace::instance();
  auto* const base = static_cast<std::byte*>(pointer);
  close_pages(base, space.size_at(base));
  space.release(base);
}

}  // namespace memoir
