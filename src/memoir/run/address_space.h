// SPDX-License-Identifier: Apache-2.0
//
// One reservation of address space for every slab of the process, so that "is this pointer ours, and whose?"
// is a subtraction, a comparison and one load, on the path of every free of the program.
//
//   base                                                              base + size
//    |  window 0  |  window 1  |  window 2  |  ...                        |
//    |<------ slab A ----->|    |<- slab B ->|                            |
//
// A slab takes whole windows in a row. Reserving and releasing lock; owner_of() does not.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class Slab;

class AddressSpace {
 public:
  static constexpr Size kWindow = 64 * kMiB;

  /// The one of the process. Never destroyed: pointers into it may be freed during exit.
  static AddressSpace& instance() noexcept;

  /// Address space for `size` bytes, aligned to 2 MiB, with `owner` as its answer; nullptr when none is left.
  std::byte* reserve(Size size, Slab* owner) noexcept;
  /// The caller has taken all memory out of it and no pointer into it is live.
  void release(std::byte* base, Size size) noexcept;

  bool contains(const void* pointer) const noexcept {
    return static_cast<Size>(static_cast<const std::byte*>(pointer) - base_) < size_;
  }
  /// The slab of a live pointer that contains() is true for.
  Slab* owner_of(const void* pointer) const noexcept {
    const Size offset = static_cast<Size>(static_cast<const std::byte*>(pointer) - base_);
    return owners_[offset / kWindow].load(std::memory_order_relaxed);
  }

 private:
  AddressSpace() noexcept;

  std::byte* base_ = nullptr;
  Size size_ = 0;
  std::atomic<Slab*>* owners_ = nullptr;  // one per window
  std::mutex mutex_;
};

}  // namespace memoir
