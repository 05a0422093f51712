// SPDX-License-Identifier: Apache-2.0
//
// The bytes of versions 1 and 2 of the trace format, which are read for ever and written no more:
//
//   0        64       112      160                     64 + 48 * records
//   | header | record | record | ...                   | zeros, while the recording runs |
#pragma once

#include <cstring>

#include "memoir/trace/event.h"
#include "memoir/trace/format.h"

namespace memoir::trace_format {

struct OldHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
  std::uint32_t header_size;
  std::uint32_t record_size;
  std::uint32_t flags;
  std::uint32_t clock;
  std::uint64_t start;    // nanoseconds since 1970-01-01 UTC, at time 0 of the events
  std::uint64_t records;  // records of 48 bytes, text included; 0 until the writer closes the file
  std::uint64_t dropped;  // records that found no room
  std::uint64_t reserved;
};
static_assert(sizeof(OldHeader) == 64);

struct OldRecord {
  EventKind kind;
  std::uint8_t alignment_log2;
  std::uint16_t device;
  std::uint32_t thread;
  std::uint64_t object;
  std::uint64_t site;
  std::uint64_t size;
  std::uint64_t time;
  std::uint32_t stream;
  std::uint32_t check;  // over the other 44 bytes and the text
};
static_assert(sizeof(OldRecord) == 48);
inline constexpr Size kRecordSize = sizeof(OldRecord);

inline bool old_has_text(const OldRecord& record) noexcept {
  return record.kind == EventKind::kSite || record.kind == EventKind::kMeta;
}

/// Bytes of the text behind a record. Version 1 had no devices: it kept how long a text is, in bytes and in
/// records, in what are now `stream` and `device`.
inline std::uint64_t old_text_bytes(const OldRecord& record, std::uint32_t version) noexcept {
  if (!old_has_text(record)) return 0;
  return version == 1 ? record.stream : record.object;
}

/// Records that a text takes.
inline std::uint64_t old_text_records(const OldRecord& record, std::uint32_t version) noexcept {
  if (version == 1) return record.device;
  const std::uint64_t bytes = old_text_bytes(record, version);
  return bytes / kRecordSize + (bytes % kRecordSize != 0);
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
inline std::uint32_t checksum(const OldRecord& record, const void* text,
                              std::uint64_t text_records) noexcept {
  std::uint64_t hash = check_words(0, &record, 5);
  const std::uint64_t last = record.stream;
  hash = check_words(hash, &last, 1);
  if (text_records != 0) hash = check_words(hash, text, text_records * kRecordSize / 8);
  return static_cast<std::uint32_t>(hash);
}

}  // namespace memoir::trace_format
