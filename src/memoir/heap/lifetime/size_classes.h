// SPDX-License-Identifier: Apache-2.0
//
// Which sizes a span is divided into, and how large the span is.
//
//   1..256      steps of 16                       16 classes
//   257..32768  eight steps per doubling          56 classes: a request is rounded up by less than 1/8
//
// A span is a run of 8 KiB slots, chosen such that what is left at its end is below 1/16 and that it holds
// enough blocks for the slow path to be rare. Powers of two up to 8 KiB lie at multiples of themselves.
#pragma once

#include <array>
#include <bit>

#include "memoir/base/units.h"

namespace memoir::size_classes {

inline constexpr Size kSlot = 8 * kKiB;
inline constexpr Size kLargest = 32 * kKiB;  // of a block of a class
inline constexpr size_t kCount = 72;

/// The class of a size in [1, kLargest]; of 0 it is the class of 1.
constexpr size_t compute(Size size) noexcept {
  const Size last = size == 0 ? 0 : size - 1;
  if (last < 256) return last >> 4;
  const unsigned exponent = 63u - static_cast<unsigned>(std::countl_zero(last));
  return 16 + (exponent - 8) * 8 + ((last >> (exponent - 3)) & 7);
}

/// Bytes of a block of the class.
constexpr Size compute_size(size_t size_class) noexcept {
  if (size_class < 16) return (size_class + 1) * 16;
  const size_t step = size_class - 16;
  return (8 + step % 8 + 1) << (step / 8 + 5);
}

namespace detail {

// More blocks make the slow path rarer, fewer make spans empty sooner.
constexpr Size wanted_blocks(Size size) noexcept {
  return size <= 512 ? 64 : size <= kKiB ? 32 : size <= 8 * kKiB ? 8 : 4;
}

constexpr Size choose_slots(Size size) noexcept {
  for (Size slots = 1;; ++slots) {
    const Size bytes = slots * kSlot, blocks = bytes / size;
    if (blocks >= wanted_blocks(size) && (bytes - blocks * size) * 16 <= bytes) return slots;
  }
}

struct Tables {
  std::array<std::uint16_t, kCount> size{};
  std::array<std::uint8_t, kCount> slots{};
  std::array<std::uint16_t, kCount> blocks{};
  std::array<std::uint8_t, kKiB / 16 + 1> class_of{};  // by (size + 15) / 16
};

constexpr Tables make_tables() noexcept {
  Tables tables;
  for (size_t i = 0; i < kCount; ++i) {
    const Size size = compute_size(i);
    tables.size[i] = static_cast<std::uint16_t>(size);
    tables.slots[i] = static_cast<std::uint8_t>(choose_slots(size));
    tables.blocks[i] = static_cast<std::uint16_t>(tables.slots[i] * kSlot / size);
  }
  for (size_t i = 0; i < tables.class_of.size(); ++i)
    tables.class_of[i] = static_cast<std::uint8_t>(compute(i * 16));
  return tables;
}

}  // namespace detail

inline constexpr detail::Tables kTables = detail::make_tables();

inline size_t class_of(Size size) noexcept {
  if (size <= kKiB) [[likely]]
    return kTables.class_of[(size + 15) / 16];
  return compute(size);
}

}  // namespace memoir::size_classes
