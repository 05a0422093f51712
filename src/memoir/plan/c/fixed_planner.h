// SPDX-License-Identifier: Apache-2.0
//
// First fit in memory that was set aside before: for those who must not allocate when they plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "memoir/plan/plan.h"

namespace memoir {

/// Its buffers as plain arrays.
struct BufferArrays {
  std::size_t count = 0;
  const std::uint64_t* lower = nullptr;
  const std::uint64_t* upper = nullptr;
  const std::uint64_t* size = nullptr;
  const std::uint64_t* alignment = nullptr;  // nullptr: 1 for all

  Size alignment_of(std::size_t i) const { return alignment == nullptr ? 1 : alignment[i]; }
};

class FixedPlanner {
 public:
  /// For at most that many buffers (< 2^32). Throws std::bad_alloc; after that it never allocates.
  explicit FixedPlanner(std::size_t most);

  std::size_t most() const noexcept { return most_; }
  /// The best of three orders into `offsets`; returns the arena's size. The buffers must be ones that
  /// validate() accepts, 0 bytes allowed, and at most most().
  Size plan(const BufferArrays& buffers, Offset* offsets) noexcept;

 private:
  Size fit(const BufferArrays& buffers, std::size_t sized) noexcept;

  std::size_t most_;
  std::unique_ptr<std::uint32_t[]> order_;   // who is placed when
  std::unique_ptr<std::uint32_t[]> placed_;  // by their offsets
  std::unique_ptr<Offset[]> tried_;          // of each buffer, in this order
  std::unique_ptr<std::uint64_t[]> keys_;
};

}  // namespace memoir
