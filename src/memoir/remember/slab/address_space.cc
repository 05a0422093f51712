// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/address_space.h"

#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "memoir/arena/host_arena.h"

namespace memoir {

namespace {

constexpr Size kMost = Size{1} << 40, kLeast = AddressSpace::kWindow;
constexpr Size kShareOfLimit = 16;

}  // namespace

AddressSpace& AddressSpace::instance() noexcept {
  alignas(AddressSpace) static std::byte storage[sizeof(AddressSpace)];
  static AddressSpace* const space = new (storage) AddressSpace;
  return *space;
}

Size AddressSpace::share_of_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMost;
  return std::min(kMost, align_down(static_cast<Size>(limit.rlim_cur) / kShareOfLimit, kWindow));
}

void AddressSpace::reserve_all() noexcept {
  Size size = share_of_limit();
  std::byte* base = nullptr;
  for (; size >= kLeast; size = align_down(size / 4, kWindow)) {
    base = reserve_address_space(size);
    if (base != nullptr) break;
  }
  if (base == nullptr) return;
  const size_t windows = size / kWindow;
  owners_ =
      static_cast<std::atomic<AddressOwner*>*>(map_metadata(windows * sizeof(std::atomic<AddressOwner*>)));
  sizes_ = static_cast<Size*>(map_metadata(windows * sizeof(Size)));
  if (owners_ == nullptr || sizes_ == nullptr) {
    unmap_metadata(owners_, windows * sizeof(std::atomic<AddressOwner*>));
    unmap_metadata(sizes_, windows * sizeof(Size));
    release_address_space(base, size);
    return;  // tried again with the next need
  }
  base_.store(base, std::memory_order_relaxed);
  windows_ = windows;
  size_.store(size, std::memory_order_release);
}

std::byte* AddressSpace::reserve(Size size, AddressOwner* owner) noexcept {
  if (size == 0 || size > kMost) return nullptr;
  const size_t wanted = (size + kWindow - 1) / kWindow;
  const std::lock_guard lock(mutex_);
  if (windows_ == 0) reserve_all();
  const size_t windows = windows_;
  if (wanted > windows) return nullptr;
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
    return base_.load(std::memory_order_relaxed) + first * kWindow;
  }
  return nullptr;
}

void AddressSpace::release(std::byte* base) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t first = offset_of(base) / kWindow, count = (sizes_[first] + kWindow - 1) / kWindow;
  for (size_t i = first; i < first + count; ++i) owners_[i].store(nullptr, std::memory_order_relaxed);
}

}  // namespace memoir
