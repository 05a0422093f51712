// SPDX-License-Identifier: Apache-2.0
//
// One reservation of address space for all that memoir hands out in the process, so that "is this pointer
// ours, and whose?" is a subtraction, a comparison and one load, on the path of every free of the program.
//
//   base                                                              base + size
//    |  window 0  |  window 1  |  window 2  |  ...                        |
//    |<------ slab A ----->|    |<- slab B ->|                            |
//
// It is reserved with the first owner's need: 1 TiB, which is no memory, or under a limit on the process's
// address space a 16th of that limit. An owner takes whole windows in a row. Reserving and releasing lock;
// owner_of() does not.
#pragma once

#include <atomic>
#include <cstddef>

#include "memoir/base/fork_mutex.h"
#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

/// Whoever has objects in the address space, and takes them back.
class AddressOwner {
 public:
  /// Frees a live object from whatever thread. See the owner.
  virtual void free_from_elsewhere(void* pointer) noexcept = 0;

 protected:
  ~AddressOwner() = default;
};

class AddressSpace {
 public:
  static constexpr Size kWindow = 64 * kMiB;

  /// The one of the process. Never destroyed: pointers into it may be freed during exit.
  static AddressSpace& instance() noexcept;

  /// Bytes that would be reserved now.
  static Size share_of_limit() noexcept;

  /// Address space for `size` bytes, aligned to 2 MiB, with `owner` as owner_of()'s answer; nullptr when none
  /// is left.
  std::byte* reserve(Size size, AddressOwner* owner) noexcept;
  /// The caller has taken all memory out of it and no pointer into it is live.
  void release(std::byte* base) noexcept;
  /// The size of the reservation that begins at `base`.
  Size size_at(const std::byte* base) const noexcept {
    return sizes_[static_cast<Size>(base - base_.load(std::memory_order_relaxed)) / kWindow];
  }

  bool contains(const void* pointer) const noexcept {
    const Size size = size_.load(std::memory_order_acquire);  // 0 until base_ stands
    return offset_of(pointer) < size;
  }
  /// The owner of a live pointer that contains() is true for.
  AddressOwner* owner_of(const void* pointer) const noexcept {
    return owners_[offset_of(pointer) / kWindow].load(std::memory_order_relaxed);
  }

 private:
  AddressSpace() = default;
  void reserve_all() noexcept;  // the caller has the lock
  Size offset_of(const void* pointer) const noexcept {
    return static_cast<Size>(static_cast<const std::byte*>(pointer) - base_.load(std::memory_order_relaxed));
  }

  std::atomic<std::byte*> base_ = nullptr;  // others ask contains() while it is set
  std::atomic<Size> size_ = 0;
  size_t windows_ = 0;
  std::atomic<AddressOwner*>* owners_ = nullptr;  // one per window
  Size* sizes_ = nullptr;                         // per window that begins a reservation: its bytes
  size_t next_ = 0;  // the window after the last reservation: where the search begins
  ForkMutex mutex_;
};

}  // namespace memoir
