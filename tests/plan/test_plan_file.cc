// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/plan_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/base/whole_file.h"

namespace memoir {
namespace {

constexpr const char* kGolden = MEMOIR_TEST_DATA "/small.v1.plan";

/// What small.v1.plan holds: two streams on one device, a private pool with a memory of its own, another
/// device.
ProgramPlan small() {
  ProgramPlan plan{.sequence = {{0x1111222233334444, 1000, 1, {0, 5}, 0},
                                {0x5555666677778888, 8, 64, {1, 9}, kNoOffset, 1},
                                {0x1111222233334444, 512, 512, {2, 5}, 1024, 1},
                                {0x9999aaaabbbbcccc, 700, 1, {3, 8}, 0, 2, 0, 1, 7},
                                {0x1111222233334444, 100, 1, {4, 7}, 1536},
                                {0, 64, 64, {4, 8}, 64, 0, 3, 2}},
                   .memories = {{"device 0", 81920, 512, 1664, 1612},
                                {"device 0, pool 7", PlannedMemory::kNoLimit, 512, 700, 700},
                                {"", PlannedMemory::kNoLimit, 1, 128, 64}},
                   .planner = "pool",
                   .meta = {{"model", "tiny"}, {"signature", "1x3\n"}, {"empty", ""}}};
  plan.skeleton = find_skeleton(plan.sequence);
  return plan;
}

/// Where in a file of small() the sections lie: 4 of 32 bytes each behind the header.
constexpr size_t kTable = 128;
constexpr size_t kRecordsAt = kTable + 4 * 32;
constexpr size_t kMemoriesAt = kRecordsAt + 6 * 64;
constexpr size_t kMetasAt = kMemoriesAt + 3 * 96;
constexpr size_t kMetasSize = 3 * 8 + 9 + 13 + 5;
constexpr size_t kSkeletonAt = kMetasAt + (kMetasSize + 7) / 8 * 8;
constexpr size_t kSkeletonSize = (6 + 2) * 4;

/// The file with another checksum, which is the one that it should have.
std::string sealed(std::string bytes) {
  // As docs/reference/formats-plan.md has it, in other words than the writer's.
  std::uint64_t hash = bytes.size();
  for (size_t word_at = 0; word_at < bytes.size(); word_at += 8) {
    std::uint64_t word = 0;
    if (word_at != 120)
      std::memcpy(&word, bytes.data() + word_at, std::min<size_t>(8, bytes.size() - word_at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  std::memcpy(bytes.data() + 120, &hash, sizeof hash);
  return bytes;
}

/// The file with a changed field, its checksum made to match again.
template <class Field>
std::string forged(std::string bytes, size_t at, Field value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return sealed(std::move(bytes));
}

/// With a fifth section, of 12 bytes.
std::string with_section(std::uint32_t kind, std::uint32_t flags) {
  std::string bytes = write_plan(small());
  for (size_t i = 0; i < 4; ++i) {  // they lie 32 bytes further on
    std::uint64_t begin;
    std::memcpy(&begin, bytes.data() + kTable + 32 * i + 8, sizeof begin);
    begin += 32;
    std::memcpy(bytes.data() + kTable + 32 * i + 8, &begin, sizeof begin);
  }
  const std::uint64_t begin = bytes.size() + 32, size = 12, count = 1, file_size = begin + 16;
  std::string section(32, '\0');
  std::memcpy(section.data(), &kind, sizeof kind);
  std::memcpy(section.data() + 4, &flags, sizeof flags);
  std::memcpy(section.data() + 8, &begin, sizeof begin);
  std::memcpy(section.data() + 16, &size, sizeof size);
  std::memcpy(section.data() + 24, &count, sizeof count);
  bytes.insert(kTable + 4 * 32, section);
  bytes += "twelve bytes";
  bytes.append(4, '\0');
  std::memcpy(bytes.data() + 24, &file_size, sizeof file_size);
  const std::uint32_t sections = 5;
  std::memcpy(bytes.data() + 20, &sections, sizeof sections);
  return sealed(bytes);
}

void refuses(const std::string& bytes, size_t at, auto value, const char* error) {
  INFO(std::string(error));
  CHECK_THROWS_WITH_AS(read_plan(forged(bytes, at, value), "p"), doctest::Contains(error), Error);
}

void refuses_damage(const std::string& bytes) {
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(read_plan(bytes.substr(0, size), "p"), Error);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string other = bytes;
    other[at] ^= 0x10;
    CHECK_THROWS_AS(read_plan(other, "p"), Error);
  }
  CHECK_THROWS_WITH_AS(read_plan(bytes + "x", "p"), "p: has 1 bytes after its end", Error);
  CHECK_THROWS_WITH_AS(read_plan(bytes.substr(0, 300), "p"),
                       "p: is cut off after 300 bytes; make it again with memoir plan", Error);
}

}  // namespace

TEST_CASE("a plan comes back as it was") {
  CHECK(read_plan(write_plan(small()), "p") == small());
  CHECK(read_plan(write_plan({}), "p") == ProgramPlan{});
  CHECK(write_plan(small()).size() == kSkeletonAt + kSkeletonSize);
}

TEST_CASE("truncated anywhere, or one byte changed anywhere, or longer") {
  refuses_damage(write_plan(small()));
  CHECK_THROWS_WITH_AS(read_plan("id,lower,upper,size", "p"), "p: is not a plan file", Error);
  CHECK_THROWS_WITH_AS(open_plan("no/such.plan"), doctest::Contains("no/such.plan: cannot be read"), Error);
}

TEST_CASE("a forger's file: the checksum fits and the bytes do not") {
  const std::string bytes = write_plan(small());
  REQUIRE(read_plan(forged(bytes, 0, '\x89'), "p") == small());
  const auto refused = [&](size_t at, auto value, const char* error) { refuses(bytes, at, value, error); };
  const auto section = [](size_t index, size_t field) { return kTable + 32 * index + field; };
  refused(8, 7u, "p: has format version 7; this memoir reads version 1");
  refused(12, 0x04030201u, "p: was written on a machine of the other endianness");
  refused(16, 64u, "p: has a header of 64 bytes");
  refused(20, ~0u, "p: its table of sections is cut off");
  refused(20, 3u, "p: a section does not lie where the one before it ends, within the file (kind 1)");
  refused(24, ~std::uint64_t{0}, "p: is cut off after");
  refused(24, std::uint64_t{8}, "bytes after its end");
  refused(80, std::uint64_t{1}, "p: has unknown fields");
  refused(section(0, 0), 0u, "p: its sections are not in the order of the kinds");
  refused(section(1, 0), 1u, "p: its sections are not in the order of the kinds (kind 1)");
  refused(section(0, 4), 1u, "p: the section of kind 1 has unknown flags");
  refused(section(3, 4), 0u, "p: the section of kind 4 has unknown flags");
  refused(section(1, 8), kMemoriesAt + 8,
          "p: a section does not lie where the one before it ends, within the file (kind 2)");
  refused(section(3, 16), ~std::uint64_t{0},
          "p: a section does not lie where the one before it ends, within the file (kind 4)");
  refused(section(3, 16), ~std::uint64_t{0} - 7,
          "p: a section does not lie where the one before it ends, within the file (kind 4)");
  refused(section(3, 16), kSkeletonSize - 8, "bytes that are of no section");
  refused(section(0, 24), std::uint64_t{5},
          "p: the section of kind 1 does not have the size of its elements");
  refused(section(1, 24), ~std::uint64_t{0},
          "p: the section of kind 2 does not have the size of its elements");
  refused(section(2, 24), std::uint64_t{4}, "p: meta 3 is cut off");
  refused(section(2, 24), std::uint64_t{2}, "p: there are 13 bytes after the last meta");
  refused(section(3, 24), std::uint64_t{3}, "p: the skeleton has 32 bytes, which its pairs do not take");
  refused(kSkeletonAt - 1, 'x', "p: a section is not followed by zeros (kind 3)");
  refused(kMetasAt, ~0u, "p: meta 0 is cut off");
}

TEST_CASE("a forger's file: the bytes fit and the plan does not") {
  const std::string bytes = write_plan(small());
  const auto refused = [&](size_t at, auto value, const char* error) { refuses(bytes, at, value, error); };
  const auto record = [](size_t index, size_t field) { return kRecordsAt + 64 * index + 8 * field; };
  const auto memory = [](size_t index, size_t field) { return kMemoriesAt + 96 * index + 32 + 8 * field; };
  refused(88, '\n', "p: the planner's name");
  refused(record(0, 1), ~std::uint64_t{0},
          "p: record 0: the size of 18446744073709551615 bytes is too large");
  refused(record(0, 1), std::uint64_t{0}, "p: record 0: has an offset for 0 bytes");
  refused(record(1, 2), std::uint64_t{0}, "p: record 1: the alignment of 0 bytes cannot be");
  refused(record(2, 3), std::uint64_t{5}, "p: record 2: the lifetime [5, 5) cannot be");
  refused(record(2, 3), std::uint64_t{0}, "p: record 2: is allocated before the record before it");
  refused(record(3, 4), ~std::uint64_t{0}, "p: record 3: the lifetime");
  refused(record(2, 2), std::uint64_t{2048}, "p: record 2: offset is not a multiple of the alignment");
  refused(record(2, 5), std::uint64_t{8}, "p: record 2: offset is not a multiple of the memory's alignment");
  refused(record(2, 5), Size{1} << 50, "p: record 2: buffer ends outside the arena");
  refused(record(2, 5), std::uint64_t{512}, "p: records 0 and 2: the two live at the same time and overlap");
  refused(record(2, 6) + 6, std::uint16_t{3}, "p: record 2: is in memory 3, which does not exist");
  refused(record(1, 6) + 6, std::uint16_t{1}, "p: record 1: is in a memory and has no offset");
  refused(record(1, 7) + 4, 1u, "p: record 1: has unknown fields");
  refused(memory(0, -4), '\x7f', "p: memory 0: its name is not one");
  refused(memory(1, -4) + 8, std::uint64_t{0}, "p: memory 1: has the name of another memory");
  refused(memory(0, 0), std::uint64_t{1663},
          "p: memory 0: the plan takes 1664 bytes of it, and its capacity is 1663 bytes");
  refused(memory(2, 1), std::uint64_t{0}, "p: memory 2: the alignment of 0 bytes cannot be");
  refused(memory(0, 2), std::uint64_t{1635}, "p: record 4: buffer ends outside the arena");
  refused(memory(1, 2), ~std::uint64_t{0},
          "p: memory 1: its size of 18446744073709551615 bytes is too large");
  refused(memory(1, 3), std::uint64_t{5}, "p: the load of memory 1 is 700 bytes, not 5 as it says");
  refused(memory(1, 4), std::uint64_t{5}, "p: memory 1 has unknown fields");
}

TEST_CASE("a forger's skeleton") {
  // Record 2 lies on 0, record 4 on 2: of each record how many there are below it, and which.
  const std::string bytes = write_plan(small());
  std::uint32_t words[8];
  std::memcpy(words, bytes.data() + kSkeletonAt, sizeof words);
  REQUIRE(std::equal(std::begin(words), std::end(words),
                     std::vector<std::uint32_t>{0, 0, 1, 0, 0, 1, 2, 0}.begin()));
  const auto refused = [&](std::vector<std::uint32_t> words, const char* error) {
    INFO(std::string(error));
    std::string other = bytes;
    std::memcpy(other.data() + kSkeletonAt, words.data(), kSkeletonSize);
    CHECK_THROWS_WITH_AS(read_plan(sealed(other), "p"), doctest::Contains(error), Error);
  };
  refused({1, 4, 0, 0, 0, 1, 2, 0}, "p: skeleton: record 0 lies on record 4, which does not end below it");
  refused({0, 0, 1, 0, 0, 1, 4, 0}, "p: skeleton: record 4 lies on record 4, which does not end below it");
  refused({0, 0, 1, 3, 0, 1, 2, 0}, "p: skeleton: record 2 lies on record 3, which does not end below it");
  refused({0, 0, 1, 0, 0, 1, 0, 0}, "p: skeleton: record 4 lies on record 2, which it does not say");
  refused({0, 0, 0, 0, 2, 0, 2, 0}, "p: skeleton: record 2 lies on record 0, which it does not say");
  refused({0, 0, 0, 0, 2, 2, 0, 0}, "p: skeleton: what record 4 lies on is not in ascending order");
  refused({0, 0, 1, 0, 0, 1, 99, 0}, "p: skeleton: record 4 lies on record 99, which does not exist");
  refused({0, 0, 1, 0, 0, 1, 1, 0}, "p: skeleton: record 4 lies on record 1, and one of them is not planned");
  refused({0, 0, 1, 0, 0, 0, 0, 0}, "p: the skeleton has pairs that belong to no record");
  refused({0, 0, 1, 0, 0, 2, 2, 0}, "p: record 4: lies on 2 others, more than the skeleton has");
  refused({9, 0, 1, 0, 0, 1, 2, 0}, "p: record 0: lies on 9 others, more than the skeleton has");
  ProgramPlan more = small();
  more.skeleton->below.insert(more.skeleton->below.begin() + 1, 0);  // record 4 on 0 as well, which is true
  more.skeleton->first = {0, 0, 0, 1, 1, 3, 3};
  CHECK(read_plan(write_plan(more), "p") == more);
}

TEST_CASE("sections of a later memoir: passed over, or refused in words") {
  CHECK(read_plan(with_section(77, 1), "p") == small());
  CHECK_THROWS_WITH_AS(
      read_plan(with_section(77, 0), "p"),
      "p: the section of kind 77 is needed, and this memoir does not know it: use a newer memoir, or "
      "make the plan again with memoir plan",
      Error);
  CHECK_THROWS_WITH_AS(read_plan(with_section(77, 3), "p"), doctest::Contains("kind 77 has unknown flags"),
                       Error);
  ProgramPlan without = small();
  without.skeleton.reset();
  CHECK(read_plan(forged(write_plan(small()), kTable + 3 * 32, 5u), "p") == without);
  CHECK_THROWS_WITH_AS(read_plan(with_section(4, 1), "p"), doctest::Contains("order of the kinds"), Error);
}

TEST_CASE("what could not be read is not written") {
  ProgramPlan plan = small();
  plan.sequence[2].offset = 512;
  CHECK_THROWS_WITH_AS(write_plan(plan), doctest::Contains("records 0 and 2"), Error);
  plan = small();
  plan.skeleton->first.pop_back();
  CHECK_THROWS_WITH_AS(write_plan(plan), doctest::Contains("its lists are not one per record"), Error);
  plan = small();
  std::swap(plan.skeleton->order[0], plan.skeleton->order[1]);
  CHECK_THROWS_WITH_AS(write_plan(plan), doctest::Contains("its order is not that of the offsets"), Error);
  plan = small();
  plan.memories.resize((1 << 16) + 1);
  CHECK_THROWS_WITH_AS(write_plan(plan), doctest::Contains("65,536"), Error);
}

// MEMOIR_REWRITE_GOLDEN=1 build/release/tests/test_plan -tc="the golden file*" writes it again.
TEST_CASE("the golden file of format version 1") {
  if (std::getenv("MEMOIR_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(kGolden, std::ios::binary) << write_plan(small());
  }
  CHECK(open_plan(kGolden) == small());
  CHECK(read_whole_file(kGolden) == write_plan(small()));
}

}  // namespace memoir
