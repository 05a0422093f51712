// SPDX-License-Identifier: Apache-2.0
//
// Version 1 of the plan file, which knew one heap and one memory.
#include "memoir/plan/files/plan_bytes.h"
#include "memoir/plan/files/plan_file.h"

namespace memoir {

namespace {

struct HeaderV1 {
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
  char planner[32];
  std::uint64_t checksum;
};
static_assert(sizeof(HeaderV1) == 128);

struct RecordV1 {
  std::uint64_t site;
  std::uint64_t size;
  std::uint64_t alignment;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t offset;
  std::uint64_t reserved[2];
};
static_assert(sizeof(RecordV1) == 64);

}  // namespace

ProgramPlan read_plan_v1(std::string_view bytes, const PlanProof& proof) {
  const auto header = element_at<HeaderV1>(bytes, 0);
  if (header.header_size != sizeof(HeaderV1) || header.record_size != sizeof(RecordV1)) {
    proof.refuse("has headers of " + std::to_string(header.header_size) + " and records of " +
                 std::to_string(header.record_size) + " bytes; version 1 has 128 and 64");
  }
  const std::string_view rest = bytes.substr(sizeof header);
  if (header.records > rest.size() / sizeof(RecordV1)) refuse_cut_off(bytes, proof);
  const std::size_t records_size = header.records * sizeof(RecordV1);
  if (header.meta_size > rest.size() - records_size) refuse_cut_off(bytes, proof);
  if (header.meta_size < rest.size() - records_size) {
    proof.refuse("has " + std::to_string(rest.size() - records_size - header.meta_size) +
                 " bytes after its end");
  }
  check_checksum(bytes, header.checksum, proof);
  if (header.flags != 0 || header.reserved[0] != 0 || header.reserved[1] != 0)
    proof.refuse("has unknown flags");

  ProgramPlan plan;
  plan.planner = zero_padded(header.planner);
  PlannedMemory& memory = plan.memories.emplace_back();
  memory.size = header.arena_size;
  memory.load = header.load;
  plan.sequence.reserve(header.records);
  std::uint64_t planned = 0;
  for (std::size_t i = 0; i < header.records; ++i) {
    const auto record = element_at<RecordV1>(rest, i);
    if (record.reserved[0] != 0 || record.reserved[1] != 0) proof.refuse(i, "has unknown fields");
    plan.sequence.push_back(
        {record.site, record.size, record.alignment, {record.begin, record.end}, record.offset});
    planned += record.offset != kNoOffset;
  }
  if (planned != header.planned) {
    proof.refuse("has " + std::to_string(planned) + " planned records, not " +
                 std::to_string(header.planned) + " as it says");
  }
  read_metas(rest.substr(records_size), header.metas, plan, proof);
  return plan;
}

}  // namespace memoir
