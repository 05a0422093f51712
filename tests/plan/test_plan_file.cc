// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/plan_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/whole_file.h"
#include "memoir/plan/plan.h"

namespace memoir {
namespace {

RecordedPlan small() {
  return {{{0x1111222233334444, 60, 64, {0, 2}, 0},
           {0x5555666677778888, 8, 64, {1, 6}, kNoOffset},
           {0x1111222233334444, 32, 64, {2, 5}, 0},
           {0x9999aaaabbbbcccc, 100, 64, {3, 4}, 64}},
          164,
          132,
          "greedy_by_size",
          {{"model", "tiny"}, {"signature", "1x3\n"}, {"empty", ""}}};
}

/// The file with a changed header or record, its checksum made to match again.
template <class Field>
std::string forged(std::string bytes, size_t at, Field value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  // As docs/formats-plan.md has it, in other words than the writer's.
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

}  // namespace

TEST_CASE("a plan comes back as it was") {
  CHECK(read_plan(write_plan(small()), "p") == small());
  CHECK(read_plan(write_plan({}), "p") == RecordedPlan{});
  CHECK(write_plan(small()).size() == 128 + 4 * 64 + 3 * 8 + 9 + 13 + 5);
}

TEST_CASE("truncated anywhere, or one byte changed anywhere, or longer") {
  const std::string bytes = write_plan(small());
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
  CHECK_THROWS_WITH_AS(read_plan("id,lower,upper,size", "p"), "p: is not a plan file", Error);
  CHECK_THROWS_WITH_AS(open_plan("no/such.plan"), doctest::Contains("no/such.plan: cannot be read"), Error);
}

TEST_CASE("a forger's file: the checksum fits and the plan does not") {
  const std::string bytes = write_plan(small());
  REQUIRE(read_plan(forged(bytes, 0, '\x89'), "p") == small());
  const auto refused = [&](size_t at, auto value, const char* error) {
    INFO(error);
    CHECK_THROWS_WITH_AS(read_plan(forged(bytes, at, value), "p"), doctest::Contains(error), Error);
  };
  const auto record = [](size_t index, size_t field) { return 128 + 64 * index + 8 * field; };
  refused(8, 7u, "p: has format version 7; this memoir reads version 1");
  refused(12, 0x04030201u, "p: was written on a machine of the other endianness");
  refused(20, 48u, "p: has headers of 128 and records of 48 bytes");
  refused(24, 1u, "p: has unknown flags");
  refused(28, 4u, "p: meta 3 is cut off");
  refused(28, 2u, "p: there are 13 bytes after the last meta");
  refused(32, ~std::uint64_t{0}, "p: is cut off after");
  refused(64, ~std::uint64_t{0}, "p: is cut off after");
  refused(40, std::uint64_t{4}, "p: has 3 planned records, not 4 as it says");
  refused(48, ~std::uint64_t{0}, "p: the arena of 18446744073709551615 bytes is too large");
  refused(48, std::uint64_t{163}, "p: record 3: buffer ends outside the arena");
  refused(56, std::uint64_t{5}, "p: the load is 132 bytes, not 5 as it says");
  refused(88, '\n', "p: the planner's name");
  refused(record(0, 1), ~std::uint64_t{0},
          "p: record 0: the size of 18446744073709551615 bytes is too large");
  refused(record(0, 1), std::uint64_t{0}, "p: record 0: has an offset for 0 bytes");
  refused(record(1, 2), std::uint64_t{0}, "p: record 1: the alignment of 0 bytes cannot be");
  refused(record(2, 3), std::uint64_t{5}, "p: record 2: the lifetime [5, 5) cannot be");
  refused(record(2, 3), std::uint64_t{0}, "p: record 2: is allocated before the record before it");
  refused(record(3, 4), ~std::uint64_t{0}, "p: record 3: the lifetime");
  refused(record(2, 5), std::uint64_t{8}, "p: record 2: offset is not a multiple of the alignment");
  refused(record(2, 5), kNoOffset - 63, "p: record 2: buffer ends outside the arena");
  refused(record(2, 5), std::uint64_t{64}, "p: records 2 and 3: the two live at the same time and overlap");
  refused(record(1, 7), std::uint64_t{1}, "p: record 1: has unknown fields");
}

TEST_CASE("what could not be read is not written") {
  RecordedPlan plan = small();
  plan.sequence[2].offset = 64;
  CHECK_THROWS_WITH_AS(write_plan(plan), doctest::Contains("records 2 and 3"), Error);
}

// MEMOIR_REWRITE_GOLDEN=1 build/release/tests/test_plan -tc="the golden file*" writes it anew.
TEST_CASE("the golden file of format version 1") {
  const std::string path = MEMOIR_TEST_DATA "/small.v1.plan";
  if (std::getenv("MEMOIR_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << write_plan(small());
  }
  CHECK(open_plan(path) == small());
  CHECK(read_whole_file(path) == write_plan(small()));
}

}  // namespace memoir
