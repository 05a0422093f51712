// SPDX-License-Identifier: Apache-2.0
//
// The plan file (.plan), format version 1. docs/formats-plan.md is the specification; this is its C++ side.
//
//   0        128      192                 128 + 64 * records
//   | header | record | record | ...      | meta: (key size, value size, key, value)... |
//
// Little-endian, fixed-size records in the order of allocation, one checksum over everything. A file from a
// stranger is not trusted: a reader also proves that the plan is one, so that no two live allocations of it
// overlap.
#pragma once

#include <bit>
#include <string>
#include <string_view>

#include "memoir/plan/recorded_plan.h"

namespace memoir {

namespace plan_format {

inline constexpr char kMagic[8] = {'\x89', 'm', 'e', 'm',
                                   'o',    'i', 'r', 'P'};  // not ASCII: no text starts so
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kEndianness = 0x01020304;
inline constexpr Size kMaxSize = Size{1} << 56;  // of an allocation, an alignment, the arena: as in a trace
inline constexpr Tick kMaxTick = Tick{1} << 62;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
  std::uint32_t header_size;
  std::uint32_t record_size;
  std::uint32_t flags;  // 0
  std::uint32_t metas;
  std::uint64_t records;
  std::uint64_t planned;  // of the records, those with an offset
  std::uint64_t arena_size;
  std::uint64_t load;
  std::uint64_t meta_size;  // bytes after the records
  std::uint64_t reserved[2];
  char planner[32];        // zero-padded
  std::uint64_t checksum;  // of the whole file, with this field as 0
};
static_assert(sizeof(Header) == 128);

struct Record {
  std::uint64_t site;
  std::uint64_t size;
  std::uint64_t alignment;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t offset;  // kNoOffset: not planned
  std::uint64_t reserved[2];
};
static_assert(sizeof(Record) == 64);
static_assert(std::endian::native == std::endian::little, "a big-endian writer would need byte swaps");

/// Of a whole file, whose own checksum field counts as 0. One multiply and one fold per eight bytes, the last
/// of which count as if zeros followed: enough against torn and flipped bytes, not against a forger, whom the
/// proof is for.
std::uint64_t checksum(std::string_view file);

}  // namespace plan_format

/// The bytes of the file. Throws Error, naming the record, where read_plan() would refuse what it is given.
std::string write_plan(const RecordedPlan& plan);

/// Throws Error, naming the file and the record: not a plan file, another version, truncated or too long,
/// altered (checksum), sizes that cannot be, an offset outside the arena or misaligned, live allocations that
/// overlap.
RecordedPlan read_plan(std::string_view bytes, const std::string& name);
RecordedPlan open_plan(const std::string& path);

}  // namespace memoir
