// SPDX-License-Identifier: Apache-2.0
//
// The glossary of quantities. Every interface of memoir speaks in these; no page, word or block unit crosses
// one.
//
//   Size      a count of bytes
//   Offset    a byte position inside one arena, 0 <= offset < capacity; heaps and plans never hold addresses
//   Tick      a moment of a recording; for planning it is the index of the event: no two events share one
//   SiteId    a 64-bit hash of an allocation site: the same site has the same id in every run (base/site.h)
//   ObjectId  one allocation of one recording; never reused, unlike the address it had
//   StreamId  a queue of work on a device, as a small number; what is queued on one stream runs in order
#pragma once

#include <cstddef>
#include <cstdint>

namespace memoir {

using Size = std::uint64_t;
using Offset = std::uint64_t;
using Tick = std::uint64_t;
using SiteId = std::uint64_t;
using ObjectId = std::uint64_t;
using StreamId = std::uint32_t;

inline constexpr Offset kNoOffset = ~Offset{0};
inline constexpr SiteId kNoSite = 0;

inline constexpr Size kKiB = Size{1} << 10;
inline constexpr Size kMiB = Size{1} << 20;
inline constexpr Size kGiB = Size{1} << 30;
inline constexpr Size kTiB = Size{1} << 40;

/// Bytes [begin, begin + size) of an arena.
struct Range {
  Offset begin = 0;
  Size size = 0;

  Offset end() const noexcept { return begin + size; }
  bool overlaps(const Range& other) const noexcept { return begin < other.end() && other.begin < end(); }
  bool operator==(const Range&) const = default;
};

/// Half-open: live at tick t when begin <= t < end. An object freed at tick t and one allocated at t may
/// share bytes.
struct Lifetime {
  Tick begin = 0;
  Tick end = 0;

  bool overlaps(const Lifetime& other) const noexcept { return begin < other.end && other.begin < end; }
  bool operator==(const Lifetime&) const = default;
};

inline constexpr bool is_power_of_two(Size value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

/// The smallest multiple of `alignment` (a power of two) that is >= value. The caller keeps value below 2^64
/// - alignment.
inline constexpr Size align_up(Size value, Size alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

inline constexpr Size align_down(Size value, Size alignment) noexcept { return value & ~(alignment - 1); }

}  // namespace memoir
