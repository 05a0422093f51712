// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/plan_file.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/plan/files/whole_file.h"
#include "memoir/plan/plan.h"

namespace memoir {
namespace {

using plan_format::Header;
using plan_format::Record;

class Prover {
 public:
  explicit Prover(const std::string& name) : name_(name) {}

  [[noreturn]] void refuse(const std::string& what) const { throw Error(name_ + ": " + what); }
  [[noreturn]] void refuse(size_t record, const std::string& what) const {
    refuse("record " + std::to_string(record) + ": " + what);
  }

  /// That the plan is one: what a run relies on when it hands out an offset.
  void prove(const RecordedPlan& plan) const {
    using plan_format::kMaxSize;
    if (plan.arena_size > kMaxSize)
      refuse("the arena of " + std::to_string(plan.arena_size) + " bytes is too large");
    Problem problem;
    Plan offsets{{}, plan.arena_size};
    std::vector<size_t> records;
    Size total = 0;
    for (size_t i = 0; i < plan.sequence.size(); ++i) {
      const PlannedAllocation& allocation = plan.sequence[i];
      const auto& [site, size, alignment, lifetime, offset] = allocation;
      if (size > kMaxSize) refuse(i, "the size of " + std::to_string(size) + " bytes is too large");
      if (alignment == 0 || alignment > kMaxSize) {
        refuse(i, "the alignment of " + std::to_string(alignment) + " bytes cannot be");
      }
      if (lifetime.begin >= lifetime.end || lifetime.end > plan_format::kMaxTick) {
        refuse(i, "the lifetime [" + std::to_string(lifetime.begin) + ", " + std::to_string(lifetime.end) +
                      ") cannot be");
      }
      if (i != 0 && lifetime.begin < plan.sequence[i - 1].lifetime.begin) {
        refuse(i, "is allocated before the record before it");
      }
      if (!allocation.planned()) continue;
      if (size == 0) refuse(i, "has an offset for 0 bytes");
      total += size + alignment;  // each at most 2^57, so that this notices long before it overflows
      if (total >> 62 != 0) refuse(i, "brings the sum of all sizes to 2^62 bytes or more");
      problem.push_back({lifetime, size, alignment});
      offsets.offsets.push_back(offset);
      records.push_back(i);
    }
    if (const auto violation = quick_check(problem, offsets)) {
      const size_t first = records.empty() ? 0 : records[violation->first];
      const size_t second = records.empty() ? 0 : records[violation->second];
      if (first == second) refuse(first, violation->what);
      refuse("records " + std::to_string(first) + " and " + std::to_string(second) + ": " + violation->what);
    }
    if (const Size most = memoir::load(problem); most != plan.load) {
      refuse("the load is " + std::to_string(most) + " bytes, not " + std::to_string(plan.load) +
             " as it says");
    }
    if (plan.planner.size() > sizeof(Header::planner) ||
        !std::all_of(plan.planner.begin(), plan.planner.end(), [](char c) { return c > ' ' && c < 127; })) {
      refuse("the planner's name is not one of at most 32 printable letters");
    }
  }

 private:
  const std::string& name_;
};

void append(std::string& bytes, const void* data, size_t size) {
  bytes.append(static_cast<const char*>(data), size);
}

/// (key size, value size: 4 bytes each; key; value) for each.
std::string write_metas(const RecordedPlan& plan) {
  std::string bytes;
  for (const auto& [key, value] : plan.meta) {
    const std::uint32_t sizes[2] = {static_cast<std::uint32_t>(key.size()),
                                    static_cast<std::uint32_t>(value.size())};
    append(bytes, sizes, sizeof sizes);
    bytes.append(key).append(value);
  }
  return bytes;
}

void read_metas(std::string_view bytes, std::uint32_t count, RecordedPlan& plan, const Prover& prover) {
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t sizes[2];
    if (bytes.size() < sizeof sizes) prover.refuse("meta " + std::to_string(i) + " is cut off");
    std::memcpy(sizes, bytes.data(), sizeof sizes);
    bytes.remove_prefix(sizeof sizes);
    if (std::uint64_t{sizes[0]} + sizes[1] > bytes.size())
      prover.refuse("meta " + std::to_string(i) + " is cut off");
    plan.meta.emplace_back(bytes.substr(0, sizes[0]), bytes.substr(sizes[0], sizes[1]));
    bytes.remove_prefix(size_t{sizes[0]} + sizes[1]);
  }
  if (!bytes.empty())
    prover.refuse("there are " + std::to_string(bytes.size()) + " bytes after the last meta");
}

}  // namespace

std::uint64_t plan_format::checksum(std::string_view file) {
  constexpr size_t kField = offsetof(Header, checksum);
  std::uint64_t hash = file.size();
  for (size_t at = 0; at < file.size(); at += 8) {
    std::uint64_t word = 0;
    if (at != kField) std::memcpy(&word, file.data() + at, std::min<size_t>(8, file.size() - at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string write_plan(const RecordedPlan& plan) {
  const std::string name = "plan";
  Prover(name).prove(plan);
  const std::string metas = write_metas(plan);
  Header header{};
  std::memcpy(header.magic, plan_format::kMagic, sizeof header.magic);
  header.version = plan_format::kVersion;
  header.endianness = plan_format::kEndianness;
  header.header_size = sizeof(Header);
  header.record_size = sizeof(Record);
  header.metas = static_cast<std::uint32_t>(plan.meta.size());
  header.records = plan.sequence.size();
  header.arena_size = plan.arena_size;
  header.load = plan.load;
  header.meta_size = metas.size();
  std::memcpy(header.planner, plan.planner.data(), plan.planner.size());

  std::string bytes(sizeof header, '\0');
  bytes.reserve(sizeof header + plan.sequence.size() * sizeof(Record) + metas.size());
  for (const auto& [site, size, alignment, lifetime, offset] : plan.sequence) {
    const Record record{site, size, alignment, lifetime.begin, lifetime.end, offset, {}};
    append(bytes, &record, sizeof record);
    header.planned += offset != kNoOffset;
  }
  bytes += metas;
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = plan_format::checksum(bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

RecordedPlan read_plan(std::string_view bytes, const std::string& name) {
  const Prover prover(name);
  Header header;
  if (bytes.size() < sizeof header.magic ||
      std::memcmp(bytes.data(), plan_format::kMagic, sizeof header.magic) != 0) {
    prover.refuse("is not a plan file");
  }
  const auto cut_off = [&] {
    prover.refuse("is cut off after " + std::to_string(bytes.size()) +
                  " bytes; make it again with memoir plan");
  };
  if (bytes.size() < sizeof header) cut_off();
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.endianness != plan_format::kEndianness)
    prover.refuse("was written on a machine of the other endianness");
  if (header.version != plan_format::kVersion) {
    prover.refuse("has format version " + std::to_string(header.version) + "; this memoir reads version " +
                  std::to_string(plan_format::kVersion) + ": make it again with memoir plan");
  }
  if (header.header_size != sizeof(Header) || header.record_size != sizeof(Record)) {
    prover.refuse("has headers of " + std::to_string(header.header_size) + " and records of " +
                  std::to_string(header.record_size) + " bytes; version 1 has 128 and 64");
  }
  const std::string_view rest = bytes.substr(sizeof header);
  if (header.records > rest.size() / sizeof(Record)) cut_off();
  const size_t records_size = header.records * sizeof(Record);
  if (header.meta_size > rest.size() - records_size) cut_off();
  if (header.meta_size < rest.size() - records_size) {
    prover.refuse("has " + std::to_string(rest.size() - records_size - header.meta_size) +
                  " bytes after its end");
  }
  if (header.checksum != plan_format::checksum(bytes))
    prover.refuse("was altered: its checksum does not match");
  if (header.flags != 0 || header.reserved[0] != 0 || header.reserved[1] != 0)
    prover.refuse("has unknown flags");

  RecordedPlan plan;
  plan.arena_size = header.arena_size;
  plan.load = header.load;
  plan.planner.assign(header.planner, sizeof header.planner);
  plan.planner.erase(plan.planner.find_last_not_of('\0') +
                     1);  // a zero within is no letter, which prove() sees
  plan.sequence.reserve(header.records);
  std::uint64_t planned = 0;
  for (size_t i = 0; i < header.records; ++i) {
    Record record;
    std::memcpy(&record, rest.data() + i * sizeof record, sizeof record);
    if (record.reserved[0] != 0 || record.reserved[1] != 0) prover.refuse(i, "has unknown fields");
    plan.sequence.push_back(
        {record.site, record.size, record.alignment, {record.begin, record.end}, record.offset});
    planned += record.offset != kNoOffset;
  }
  if (planned != header.planned) {
    prover.refuse("has " + std::to_string(planned) + " planned records, not " +
                  std::to_string(header.planned) + " as it says");
  }
  read_metas(rest.substr(records_size), header.metas, plan, prover);
  prover.prove(plan);
  return plan;
}

RecordedPlan open_plan(const std::string& path) { return read_plan(read_whole_file(path), path); }

}  // namespace memoir
