// SPDX-License-Identifier: Apache-2.0
//
// The plan file (.plan), format version 1. docs/reference/formats-plan.md is the
// specification; this is its C++ side.
//
//   0        128                  128 + 32 * sections
//   | header | section | section | records ... | memories ... | metas ... | skeleton ... |
//
// Little-endian, sections of fixed-size elements that the table behind the header names, one checksum over
// everything. A file from a stranger is not trusted: a reader allocates no more than in proportion to the
// file's size, and proves that the plan is one, so that no two live allocations of it overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "memoir/base/section_table.h"
#include "memoir/plan/program_plan.h"

namespace memoir {

namespace plan_format {

inline constexpr char kMagic[8] = {'\x89', 'm', 'e', 'm',
                                   'o',    'i', 'r', 'P'};  // not ASCII: no text starts so
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kEndianness = 0x01020304;
inline constexpr Size kMaxSize = Size{1} << 56;  // of an allocation, an alignment, a memory: as in a trace
inline constexpr Tick kMaxTick = Tick{1} << 62;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endianness;
  std::uint32_t header_size;
  std::uint32_t sections;
  std::uint64_t file_size;  // bytes
  std::uint64_t reserved[7];
  char planner[32];        // zero-padded
  std::uint64_t checksum;  // of the whole file, with this field as 0
};
static_assert(sizeof(Header) == 128);

enum SectionKind : std::uint32_t { kRecords = 1, kMemories = 2, kMetas = 3, kSkeleton = 4 };

struct Record {
  std::uint64_t site;
  std::uint64_t size;
  std::uint64_t alignment;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t offset;  // kNoOffset: not planned
  std::uint32_t stream;
  std::uint16_t device;
  std::uint16_t memory;
  std::uint32_t pool;
  std::uint32_t reserved;
};
static_assert(sizeof(Record) == 64);

struct Memory {
  char name[32];  // zero-padded
  std::uint64_t capacity;
  std::uint64_t alignment;
  std::uint64_t size;
  std::uint64_t load;
  std::uint64_t reserved[4];
};
static_assert(sizeof(Memory) == 96);
/// Of a whole file: enough against torn and flipped bytes, not against a forger, whom the proof is for.
inline std::uint64_t checksum(std::string_view file) noexcept {
  return file_checksum(file, offsetof(Header, checksum));
}

}  // namespace plan_format

/// The bytes of the file. Throws Error, naming the record, where read_plan() would refuse what it is given.
std::string write_plan(const ProgramPlan& plan);

/// Throws Error, naming the file and the record: not a plan file, another version, truncated or too long,
/// altered (checksum), a section that is needed and not known, sizes that cannot be, an offset outside its
/// memory or misaligned, live allocations that overlap, a skeleton that does not separate them.
ProgramPlan read_plan(std::string_view bytes, const std::string& name);
ProgramPlan open_plan(const std::string& path);

}  // namespace memoir
