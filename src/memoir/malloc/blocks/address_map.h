// SPDX-License-Identifier: Apache-2.0
//
// The addresses of the arena, and the records of its spans below it:
//
//   | spans: 64 bytes a slot | back: 1 byte a slot | arena, up to 16 TiB |
//                                                  ^ base, a multiple of 2 MiB, at random
//
// Nothing is reserved: all three are mapped piece by piece as the arena grows, so that what the process has
// mapped says what it uses, and limits of its address space hold for it as for any other. Where somebody else
// has mapped something meanwhile the arena leaves a gap. Its regions go back one by one when the system
// refuses more.
#pragma once

#include <atomic>

#include "memoir/base/units.h"
#include "memoir/malloc/blocks/checked.h"
#include "memoir/malloc/blocks/span.h"

namespace memoir::malloc_ {

inline constexpr Size kArenaCapacity = 16 * kTiB;
inline constexpr Size kArenaSlots = kArenaCapacity / size_classes::kSlot;
// A block, its record and its byte are touched together. Were they apart by powers of two alone, some
// processors' caches would take their lines for each other: malloc and free of one block took twice as long.
inline constexpr Size kBackBytes = kArenaSlots + 0x6d * 4 * kKiB;
inline constexpr Size kSpanBytes = kArenaSlots * sizeof(Span) + 0x12 * 4 * kKiB;

/// What every free reads, on a cache line that is hardly ever written. Before the arena exists no address
/// lies in it.
struct alignas(64) ArenaBounds {
  std::atomic<std::uintptr_t> base{std::uintptr_t{1} << 63};
  std::atomic<Size> size{0};  // how far it has grown
};
inline constinit ArenaBounds arena_bounds;

/// Offsets below it have a record.
inline Size arena_size() noexcept { return arena_bounds.size.load(std::memory_order_relaxed); }

inline std::uintptr_t base() noexcept { return arena_bounds.base.load(std::memory_order_relaxed); }
/// Below arena_size() for addresses of the arena.
inline Offset offset_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) - base();
}
inline void* address_of(Offset offset) noexcept { return reinterpret_cast<void*>(base() + offset); }

inline Span* span_at(size_t slot) noexcept {
  return reinterpret_cast<Span*>(base() - kBackBytes - kSpanBytes) + slot;
}
inline std::uint8_t* back_at(size_t slot) noexcept {
  return reinterpret_cast<std::uint8_t*>(base() - kBackBytes) + slot;
}
inline size_t slot_of(const Span* span) noexcept { return static_cast<size_t>(span - span_at(0)); }
inline void* start_of(const Span* span) noexcept { return address_of(slot_of(span) * size_classes::kSlot); }
/// The span of an address in the arena that a block was handed out at; `arena` is base().
inline Span* span_of(Offset offset, std::uintptr_t arena) noexcept {
  const size_t slot = offset / size_classes::kSlot;
  const std::uintptr_t back = arena - kBackBytes;
  return reinterpret_cast<Span*>(back - kSpanBytes) +
         (slot - reinterpret_cast<std::uint8_t*>(back)[slot]);  // one shift
}
inline Span* span_of(Offset offset) noexcept { return span_of(offset, base()); }

/// The same of any address; nullptr where no span lies, such as in a gap of the arena.
inline Span* span_with(Offset offset) noexcept {
  if (offset >= arena_size()) return nullptr;
  Span* const span = span_of(offset);
  return span->owner.load(std::memory_order_relaxed) == kNobody ? nullptr : span;
}

/// How far into its span that address lies.
inline Size into_span(Offset offset, std::uintptr_t arena) noexcept {
  const std::uint8_t back = reinterpret_cast<std::uint8_t*>(arena - kBackBytes)[offset / size_classes::kSlot];
  return back * size_classes::kSlot + offset % size_classes::kSlot;
}

/// Chooses the base. False when there are no addresses at all. The caller locks.
bool choose_addresses() noexcept;

enum class Growth : std::uint8_t {
  kDone,
  kGap,      // somebody else lies there: the arena ends behind it, and its records say that nobody has it
  kRefused,  // by the system, or the arena is full: it ends where it did
};
/// The arena gets `size` bytes more, a multiple of 2 MiB, at its end. The caller locks; errno changes.
Growth grow_addresses(Size size) noexcept;
/// Addresses [from, from + size) of the arena, which nobody uses, back to the system, and again from it.
/// False when it refuses. The caller locks; errno changes.
bool give_addresses_back(Offset from, Size size) noexcept;
Growth take_addresses_again(Offset from, Size size) noexcept;

}  // namespace memoir::malloc_
