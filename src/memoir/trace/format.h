// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a trace file, format version 2; docs/formats.md is the specification, this is its C++ side.
//
//   0        64       112      160                     64 + 48 * records
//   | header | record | record | ...                   | zeros, while the recording runs |
//
#pragma once

#include <bit>
#include <cstring>

#include "memoir/trace/event.h"

namespace memoir::trace_format {

inline constexpr char kMagic[8] = {'\x89', 'm', 'e', 'm',
                                   'o',    'i', 'r', 'T'};  // not ASCII: no text file starts so
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::uint32_t kOldestVersion = 1;  // that is still read
inline constexpr std::uint32_t kEndianness = 0x01020304;
inline constexpr std::uint32_t kComplete = 1;        // flags: the writer closed the file
inline constexpr std::uint32_t kClockMonotonic = 1;  // clock: CLOCK_MONOTONIC, in nanoseconds
inline constexpr std::uint32_t kClockImported = 2;   // clock: that of whoever recorded, in nanoseconds

inline constexpr Size kRecordSize = sizeof(Event);
inline constexpr Size kMaxSiteText = 4 * kKiB;  // bytes of one frame's name
inline constexpr Size kMaxMetaText = kMiB;      // bytes of "key=value"
/// The largest object, and the most bytes live at once: no machine maps more for one process (five-level page
/// tables).
inline constexpr unsigned kMaxSizeLog2 = 56;
inline constexpr Size kMaxSize = Size{1} << kMaxSizeLog2;
inline constexpr Tick kMaxTime = Tick{1} << 62;
/// Where the addresses of a device end, and the most that an out_of_memory may have asked for.
inline constexpr Size kMaxAddress = Size{1} << 63;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
  std::uint32_t header_size;
  std::uint32_t record_size;
  std::uint32_t flags;
  std::uint32_t clock;
  std::uint64_t start;    // nanoseconds since 1970-01-01 UTC, at time 0 of the events
  std::uint64_t records;  // records of 48 bytes, text included; 0 until the writer closes the file
  std::uint64_t dropped;  // records that found no room; kept up to date while recording
  std::uint64_t reserved;
};
static_assert(sizeof(Header) == 64);
static_assert(std::endian::native == std::endian::little, "a big-endian writer would need byte swaps");

/// Version 1 had no devices: it kept how long a text is, in bytes and in records, in what are now `stream`
/// and `device`. Its record as one of today, which has the same bytes but for a text. Check the two before.
inline Event from_version_1(Event event) noexcept {
  if (has_text(event)) event.object = event.stream;
  event.device = 0;
  event.stream = 0;
  return event;
}

/// One multiply and one fold per eight bytes: enough against torn and flipped bytes, not against a forger.
inline std::uint64_t check_words(std::uint64_t hash, const void* data, Size words) noexcept {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (Size i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes + 8 * i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

/// The checksum of a record (whatever its own `check` holds) and of the text records that follow it.
inline std::uint32_t checksum(const Event& event, const void* text, std::uint64_t text_records) noexcept {
  std::uint64_t hash = check_words(0, &event, 5);
  const std::uint64_t last = event.stream;
  hash = check_words(hash, &last, 1);
  if (text_records != 0) hash = check_words(hash, text, text_records * kRecordSize / 8);
  return static_cast<std::uint32_t>(hash);
}

}  // namespace memoir::trace_format
