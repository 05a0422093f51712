// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/plan_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/base/whole_file.h"
#include "memoir/plan/files/plan_proof.h"

namespace memoir {

namespace {

using plan_format::Header;
using plan_format::Memory;
using plan_format::Record;

/// The element of that number in a table of them. The caller has checked that it is there.
template <class Element>
Element element_at(std::string_view table, std::size_t index) {
  Element element;
  std::memcpy(&element, table.data() + index * sizeof element, sizeof element);
  return element;
}

template <std::size_t N>
std::string_view zero_padded(const char (&field)[N]) {
  const std::string_view text(field, N);
  // a zero within is not a letter, which the proof sees
  return text.substr(0, text.find_last_not_of('\0') + 1);
}

[[noreturn]] void refuse_cut_off(std::string_view bytes, const PlanProof& proof) {
  proof.refuse("is cut off after " + std::to_string(bytes.size()) + " bytes; make it again with memoir plan");
}

void check_checksum(std::string_view bytes, std::uint64_t checksum, const PlanProof& proof) {
  if (checksum != plan_format::checksum(bytes)) proof.refuse("was altered: its checksum does not match");
}

/// (key size, value size: 4 bytes each; key; value) for each.
void read_metas(std::string_view bytes, std::uint64_t count, ProgramPlan& plan, const PlanProof& proof) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (bytes.size() < 2 * sizeof(std::uint32_t)) proof.refuse("meta " + std::to_string(i) + " is cut off");
    const auto key = element_at<std::uint32_t>(bytes, 0), value = element_at<std::uint32_t>(bytes, 1);
    bytes.remove_prefix(2 * sizeof(std::uint32_t));
    if (std::uint64_t{key} + value > bytes.size()) proof.refuse("meta " + std::to_string(i) + " is cut off");
    plan.meta.emplace_back(bytes.substr(0, key), bytes.substr(key, value));
    bytes.remove_prefix(size_t{key} + value);
  }
  if (!bytes.empty())
    proof.refuse("there are " + std::to_string(bytes.size()) + " bytes after the last meta");
}

void append(std::string& bytes, const void* data, size_t size) {
  bytes.append(static_cast<const char*>(data), size);
}

/// With zeros, to the start of the next section.
void pad(std::string& bytes) { bytes.resize((bytes.size() + 7) / 8 * 8); }

std::string write_records(const ProgramPlan& plan) {
  std::string bytes;
  bytes.reserve(plan.sequence.size() * sizeof(Record));
  for (const PlannedAllocation& allocation : plan.sequence) {
    const auto& [site, size, alignment, lifetime, offset, stream, device, memory, pool] = allocation;
    const Record record{site,   size, alignment, lifetime.begin, lifetime.end, offset, stream, device,
                        memory, pool, 0};
    append(bytes, &record, sizeof record);
  }
  return bytes;
}

std::string write_memories(const ProgramPlan& plan) {
  std::string bytes;
  for (const auto& [name, capacity, alignment, size, load] : plan.memories) {
    Memory memory{{}, capacity, alignment, size, load, {}};
    std::memcpy(memory.name, name.data(), name.size());
    append(bytes, &memory, sizeof memory);
  }
  return bytes;
}

std::string write_metas(const ProgramPlan& plan) {
  std::string bytes;
  for (const auto& [key, value] : plan.meta) {
    const std::uint32_t sizes[2] = {static_cast<std::uint32_t>(key.size()),
                                    static_cast<std::uint32_t>(value.size())};
    append(bytes, sizes, sizeof sizes);
    bytes.append(key).append(value);
  }
  return bytes;
}

/// Of each record how many it lies on, and which.
std::string write_skeleton(const Skeleton& skeleton) {
  std::string bytes;
  for (size_t i = 0; i + 1 < skeleton.first.size(); ++i) {
    const auto below = skeleton.below_of(i);
    const auto count = static_cast<std::uint32_t>(below.size());
    append(bytes, &count, sizeof count);
    append(bytes, below.data(), below.size_bytes());
  }
  return bytes;
}

Skeleton read_skeleton(std::string_view bytes, std::uint64_t pairs, const ProgramPlan& plan,
                       const PlanProof& proof) {
  const size_t records = plan.sequence.size();
  const size_t words = bytes.size() / sizeof(std::uint32_t);
  if (bytes.size() % sizeof(std::uint32_t) != 0 || words < records || words - records != pairs)
    proof.refuse("the skeleton has " + std::to_string(bytes.size()) + " bytes, which its pairs do not take");
  Skeleton skeleton{order_by_offset(plan.sequence), {0}, {}};
  skeleton.first.reserve(records + 1);
  skeleton.below.reserve(pairs);
  size_t at = 0;
  for (size_t i = 0; i < records; ++i) {
    // The counts of the records that follow are there, so that this one cannot reach beyond the end.
    const auto count = element_at<std::uint32_t>(bytes, at++);
    if (count > pairs - skeleton.below.size())
      proof.refuse(i, "lies on " + std::to_string(count) + " others, more than the skeleton has");
    for (std::uint32_t k = 0; k < count; ++k)
      skeleton.below.push_back(element_at<std::uint32_t>(bytes, at++));
    skeleton.first.push_back(static_cast<std::uint32_t>(skeleton.below.size()));
  }
  if (skeleton.below.size() != pairs) proof.refuse("the skeleton has pairs that belong to no record");
  return skeleton;
}

/// The sections of a file by their kind, from 1 on; where each is, and how much is in it.
class FileSections {
 public:
  struct Place {
    std::string_view bytes;
    std::uint64_t count = 0;
    bool there = false;
  };

  FileSections(std::string_view bytes, const Header& header, const PlanProof& proof) : proof_(proof) {
    SectionReader table(bytes, sizeof(Header), header.sections);
    while (table.next()) keep(table.section(), table.content());
    const std::uint32_t kind = table.section().kind;  // the one that it stopped at
    const std::string where = kind == 0 ? "" : " (kind " + std::to_string(kind) + ")";
    if (table.fault() != nullptr) proof.refuse(table.fault() + where);
  }

  const Place& of(plan_format::SectionKind kind) const { return places_[kind]; }
  /// Of elements of one size.
  const Place& table(plan_format::SectionKind kind, size_t element) const {
    const Place& place = places_[kind];
    if (!place.there) proof_.refuse("has no section of kind " + std::to_string(kind));
    if (place.bytes.size() % element != 0 || place.bytes.size() / element != place.count)
      refuse(kind, "does not have the size of its elements");
    return place;
  }

 private:
  [[noreturn]] void refuse(std::uint32_t kind, const std::string& what) const {
    proof_.refuse("the section of kind " + std::to_string(kind) + " " + what);
  }
  void keep(const Section& section, std::string_view bytes) {
    const bool known = section.kind < places_.size();
    if (!known && section.flags == kOptionalSection) return;
    if (!known && section.flags == 0) {
      refuse(section.kind,
             "is needed, and this memoir does not know it: use a newer memoir, or make the plan "
             "again with memoir plan");
    }
    if (section.flags != (section.kind == plan_format::kSkeleton ? kOptionalSection : 0))
      refuse(section.kind, "has unknown flags");
    places_[section.kind] = {bytes, section.count, true};
  }

  const PlanProof& proof_;
  std::array<Place, 5> places_;
};

ProgramPlan read_sections(std::string_view bytes, const PlanProof& proof) {
  const auto header = element_at<Header>(bytes, 0);
  if (header.header_size != sizeof(Header)) {
    proof.refuse("has a header of " + std::to_string(header.header_size) + " bytes; version 1 has 128");
  }
  if (header.file_size > bytes.size()) refuse_cut_off(bytes, proof);
  if (header.file_size < bytes.size())
    proof.refuse("has " + std::to_string(bytes.size() - header.file_size) + " bytes after its end");
  check_checksum(bytes, header.checksum, proof);
  if (std::any_of(std::begin(header.reserved), std::end(header.reserved),
                  [](auto word) { return word != 0; }))
    proof.refuse("has unknown fields");
  const FileSections sections(bytes, header, proof);
  const FileSections::Place& records = sections.table(plan_format::kRecords, sizeof(Record));
  const FileSections::Place& memories = sections.table(plan_format::kMemories, sizeof(Memory));

  ProgramPlan plan;
  plan.planner = zero_padded(header.planner);
  plan.memories.reserve(memories.count);
  for (size_t i = 0; i < memories.count; ++i) {
    const auto memory = element_at<Memory>(memories.bytes, i);
    if (std::any_of(std::begin(memory.reserved), std::end(memory.reserved),
                    [](auto word) { return word != 0; }))
      proof.refuse("memory " + std::to_string(i) + " has unknown fields");
    plan.memories.push_back(
        {std::string(zero_padded(memory.name)), memory.capacity, memory.alignment, memory.size, memory.load});
  }
  plan.sequence.reserve(records.count);
  for (size_t i = 0; i < records.count; ++i) {
    const auto record = element_at<Record>(records.bytes, i);
    if (record.reserved != 0) proof.refuse(i, "has unknown fields");
    plan.sequence.push_back({record.site,
                             record.size,
                             record.alignment,
                             {record.begin, record.end},
                             record.offset,
                             record.stream,
                             record.device,
                             record.memory,
                             record.pool});
  }
  if (const auto& metas = sections.of(plan_format::kMetas); metas.there)
    read_metas(metas.bytes, metas.count, plan, proof);
  else proof.refuse("has no section of kind 3");
  if (const auto& skeleton = sections.of(plan_format::kSkeleton); skeleton.there)
    plan.skeleton = read_skeleton(skeleton.bytes, skeleton.count, plan, proof);
  return plan;
}

}  // namespace

std::string write_plan(const ProgramPlan& plan) {
  const std::string name = "plan";
  PlanProof(name).prove(plan);
  struct Part {
    plan_format::SectionKind kind;
    std::uint64_t count;
    std::string bytes;
  };
  std::vector<Part> parts{{plan_format::kRecords, plan.sequence.size(), write_records(plan)},
                          {plan_format::kMemories, plan.memories.size(), write_memories(plan)},
                          {plan_format::kMetas, plan.meta.size(), write_metas(plan)}};
  if (plan.skeleton)
    parts.push_back({plan_format::kSkeleton, plan.skeleton->below.size(), write_skeleton(*plan.skeleton)});

  Header header{};
  std::memcpy(header.magic, plan_format::kMagic, sizeof header.magic);
  header.version = plan_format::kVersion;
  header.endianness = plan_format::kEndianness;
  header.header_size = sizeof(Header);
  header.sections = static_cast<std::uint32_t>(parts.size());
  std::memcpy(header.planner, plan.planner.data(), plan.planner.size());

  std::string bytes(sizeof header + parts.size() * sizeof(Section), '\0');
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [kind, count, content] = parts[i];
    const Section section{kind, kind == plan_format::kSkeleton ? kOptionalSection : 0, bytes.size(),
                          content.size(), count};
    std::memcpy(bytes.data() + sizeof header + i * sizeof section, &section, sizeof section);
    bytes += content;
    pad(bytes);
  }
  header.file_size = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = plan_format::checksum(bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

ProgramPlan read_plan(std::string_view bytes, const std::string& name) {
  const PlanProof proof(name);
  if (bytes.size() < sizeof Header::magic ||
      std::memcmp(bytes.data(), plan_format::kMagic, sizeof Header::magic) != 0) {
    proof.refuse("is not a plan file");
  }
  if (bytes.size() < sizeof(Header)) refuse_cut_off(bytes, proof);
  const auto header = element_at<Header>(bytes, 0);
  if (header.endianness != plan_format::kEndianness)
    proof.refuse("was written on a machine of the other endianness");
  if (header.version != plan_format::kVersion) {
    proof.refuse("has format version " + std::to_string(header.version) +
                 "; this memoir reads version 1: make it again with memoir plan");
  }
  ProgramPlan plan = read_sections(bytes, proof);
  proof.prove(plan);
  return plan;
}

ProgramPlan open_plan(const std::string& path) { return read_plan(read_whole_file(path), path); }

}  // namespace memoir
