// SPDX-License-Identifier: Apache-2.0
#include "memoir/run/address_space.h"

#include <new>

#include "memoir/arena/host_arena.h"

namespace memoir {

namespace {
constexpr Size kMost = Size{1} << 40,
               kLeast = Size{1} << 30;  // under a limit on address space, take what there is
}

AddressSpace& AddressSpace::instance() noexcept {
  alignas(AddressSpace) static std::byte storage[sizeof(AddressSpace)];
  static AddressSpace* const space = new (storage) AddressSpace;
  return *space;
}

AddressSpace::AddressSpace() noexcept {
  for (Size size = kMost; size >= kLeast && base_ == nullptr; size /= 4) {
    base_ = reserve_address_space(size);
    size_ = base_ == nullptr ? 0 : size;
  }
  if (base_ == nullptr) return;
  owners_ = static_cast<std::atomic<Slab*>*>(map_metadata(size_ / kWindow * sizeof(std::atomic<Slab*>)));
  if (owners_ == nullptr) {
    release_address_space(base_, size_);
    base_ = nullptr;
    size_ = 0;
  }
}

std::byte* AddressSpace::reserve(Size size, Slab* owner) noexcept {
  if (size == 0 || size > size_) return nullptr;
  const size_t wanted = (size + kWindow - 1) / kWindow, windows = size_ / kWindow;
  const std::lock_guard lock(mutex_);
  size_t run = 0;
  for (size_t window = 0; window < windows; ++window) {
    run = owners_[window].load(std::memory_order_relaxed) == nullptr ? run + 1 : 0;
    if (run < wanted) continue;
    const size_t first = window + 1 - wanted;
    for (size_t i = first; i <= window; ++i) owners_[i].store(owner, std::memory_order_relaxed);
    return base_ + first * kWindow;
  }
  return nullptr;
}

void AddressSpace::release(std::byte* base, Size size) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t first = static_cast<Size>(base - base_) / kWindow, count = (size + kWindow - 1) / kWindow;
  for (size_t i = first; i < first + count; ++i) owners_[i].store(nullptr, std::memory_order_relaxed);
}

}  // namespace memoir
