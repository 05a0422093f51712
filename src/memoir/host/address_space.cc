// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/address_space.h"

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
  const size_t windows = size_ / kWindow;
  owners_ =
      static_cast<std::atomic<AddressOwner*>*>(map_metadata(windows * sizeof(std::atomic<AddressOwner*>)));
  sizes_ = static_cast<Size*>(map_metadata(windows * sizeof(Size)));
  if (owners_ == nullptr || sizes_ == nullptr) {
    release_address_space(base_, size_);
    base_ = nullptr;
    size_ = 0;
  }
}

std::byte* AddressSpace::reserve(Size size, AddressOwner* owner) noexcept {
  if (size == 0 || size > size_) return nullptr;
  const size_t wanted = (size + kWindow - 1) / kWindow, windows = size_ / kWindow;
  const std::lock_guard lock(mutex_);
  if (next_ + wanted > windows) next_ = 0;
  size_t run = 0;
  // Once round, and the stretch again in which a run may have begun.
  for (size_t step = 0, window = next_; step < windows + wanted; ++step, ++window) {
    if (window == windows) window = run = 0;  // a reservation does not wrap
    run = owners_[window].load(std::memory_order_relaxed) == nullptr ? run + 1 : 0;
    if (run < wanted) continue;
    const size_t first = window + 1 - wanted;
    for (size_t i = first; i <= window; ++i) owners_[i].store(owner, std::memory_order_relaxed);
    sizes_[first] = size;
    next_ = window + 1 < windows ? window + 1 : 0;
    return base_ + first * kWindow;
  }
  return nullptr;
}

void AddressSpace::release(std::byte* base) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t first = static_cast<Size>(base - base_) / kWindow,
               count = (sizes_[first] + kWindow - 1) / kWindow;
  for (size_t i = first; i < first + count; ++i) owners_[i].store(nullptr, std::memory_order_relaxed);
}

}  // namespace memoir
