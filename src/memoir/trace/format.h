// SPDX-License-Identifier: Apache-2.0
//
// The file header of a trace, format version 1, and bounds; docs/reference/formats.md is the
// specification, this is its C++ side. Behind the header come blocks (block_format.h).
#pragma once

#include <bit>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir::trace_format {

inline constexpr char kMagic[8] = {'\x89', 'm', 'e', 'm',
                                   'o',    'i', 'r', 'T'};  // not ASCII: no text file starts so
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kEndianness = 0x01020304;
inline constexpr std::uint32_t kComplete = 1;        // flags: the recording ended by itself
inline constexpr std::uint32_t kClockMonotonic = 1;  // clock: CLOCK_MONOTONIC
inline constexpr std::uint32_t kClockImported = 2;   // clock: that of whoever recorded

inline constexpr std::uint32_t kNanosecondTick = 1;
inline constexpr std::uint32_t kMillisecondTick = 1'000'000;
inline constexpr std::uint32_t kLongestTick = 1'000'000'000;

inline constexpr Size kMaxSiteText = 4 * kKiB;   // bytes of one frame's name
inline constexpr Size kMaxMetaText = kMiB;       // bytes of "key=value"
inline constexpr std::size_t kMaxFrames = 4096;  // of one stack: Python's own limit is 1,000
/// The largest object, and the most bytes live at once: no machine maps more for one process (five-level page
/// tables).
inline constexpr unsigned kMaxSizeLog2 = 56;
inline constexpr Size kMaxSize = Size{1} << kMaxSizeLog2;
inline constexpr Tick kMaxTime = Tick{1} << 62;  // nanoseconds
/// Where the addresses of a device end, and the most that an out_of_memory may have asked for.
inline constexpr Size kMaxAddress = Size{1} << 63;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
  std::uint32_t header_size;
  std::uint32_t tick;  // nanoseconds of one: a power of ten
  std::uint32_t flags;
  std::uint32_t clock;
  std::uint64_t start;    // nanoseconds since 1970-01-01 UTC, at tick 0
  std::uint64_t end;      // bytes of the file when it is complete; 0 before
  std::uint64_t dropped;  // events that found no room; kept up to date while recording
  std::uint64_t flushed;  // tick: every event before it is in the file; 0: each is, at once
};
static_assert(sizeof(Header) == 64);
static_assert(std::endian::native == std::endian::little, "a big-endian writer would need byte swaps");

/// Whether a header may say so: 1, 10, 100, ... nanoseconds. A flipped bit makes another number.
inline constexpr bool is_tick(std::uint32_t nanoseconds) noexcept {
  std::uint32_t power = 1;
  while (power < nanoseconds && power < kLongestTick) power *= 10;
  return power == nanoseconds;
}

}  // namespace memoir::trace_format
