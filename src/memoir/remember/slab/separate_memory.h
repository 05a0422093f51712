// SPDX-License-Identifier: Apache-2.0
//
// Memory for the large objects of a recorded pass: each has pages of its own, mapped at its allocation and
// given back at its free, so the pass peaks at its live bytes, whatever the program's malloc would have kept
// for later. A recorded pass is the one time that a remembered program runs without its slab; its peak must
// not be what the process is remembered for. Thread-safe.
#pragma once

#include "memoir/remember/slab/address_space.h"

namespace memoir {

class SeparateMemory final : public AddressOwner {
 public:
  /// Objects below this are better off with malloc.
  static constexpr Size kLeast = 256 * kKiB;

  static SeparateMemory& instance() noexcept;

  /// Zeroed memory aligned to 2 MiB, or nullptr when the system or the address space has none: take it
  /// elsewhere.
  void* allocate(Size size) noexcept;
  void free_from_elsewhere(void* pointer) noexcept override;

 private:
  SeparateMemory() = default;
};

}  // namespace memoir
