// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/aside_range.h"

#include "doctest/doctest.h"
#include "small_row.h"

namespace memoir {

namespace {

using Treatment = AsideRange::Treatment;

PoolRow::Index take(PoolRow& row, Range range) {
  REQUIRE(row.reserve_records(8));
  return row.take_window(row.block_at(range.begin), range, kGranule, range.size, row.slot_of(0));
}

}  // namespace

TEST_CASE("the largest hole gives its start, and has it back") {
  PoolRow row(kAlignment, 0);
  REQUIRE(row.begin(kCapacity));
  const PoolRow::Index object = take(row, {8 * kGranule, kGranule});  // holes of 8 and of 55 granules
  AsideRange aside;
  CHECK_FALSE(aside.is_set());
  CHECK_FALSE(aside.holds({0, 1}));
  CHECK_FALSE(aside.set(row, 56 * kGranule));
  CHECK_FALSE(aside.is_set());
  REQUIRE(aside.set(row, 10 * kGranule));
  CHECK(aside.range() == Range{9 * kGranule, 10 * kGranule});
  CHECK(row[row.block_at(9 * kGranule)].zone == PoolRow::Zone::kAside);
  CHECK(row[row.block_at(9 * kGranule)].range == aside.range());
  CHECK(row[row.block_at(19 * kGranule)].zone == PoolRow::Zone::kCommon);
  CHECK(row[object].zone == PoolRow::Zone::kCommon);
  REQUIRE(aside.set(row, 0));
  CHECK_FALSE(aside.is_set());
  CHECK(row[row.block_at(9 * kGranule)].range.size == 55 * kGranule);
}

TEST_CASE("a place there is free until something lives in it") {
  PoolRow row(kAlignment, 0);
  REQUIRE(row.begin(kCapacity));
  AsideRange aside;
  REQUIRE(aside.set(row, 10 * kGranule));
  const Range place{kGranule, 2 * kGranule};
  REQUIRE(aside.holds(place));
  CHECK(aside.free_at(row, place) == row.block_at(kGranule));
  CHECK(aside.holds({9 * kGranule, kGranule}));
  CHECK_FALSE(aside.holds({9 * kGranule, kGranule + 1}));
  CHECK_FALSE(aside.holds({10 * kGranule, 1}));
  const PoolRow::Index object = take(row, place);
  CHECK(row[object].zone == PoolRow::Zone::kAside);
  CHECK(aside.free_at(row, place) == 0);
  CHECK(aside.free_at(row, {0, kGranule}) == row.block_at(0));
  CHECK(aside.free_at(row, {0, kGranule + 1}) == 0);
  CHECK(aside.free_at(row, {9 * kGranule, 2 * kGranule}) == 0);  // it ends beyond
  REQUIRE(aside.set(row, 0));
  CHECK(row[object].zone == PoolRow::Zone::kCommon);  // what lived there stays
  CHECK(row.find_live(kGranule) == object);
}

TEST_CASE("what it needs, and whom it serves") {
  PoolRow row(kAlignment, 0);
  REQUIRE(row.begin(kCapacity));
  AsideRange aside;
  CHECK_FALSE(aside.yields());
  CHECK_FALSE(aside.shares());
  REQUIRE(aside.set(row, 10 * kGranule));
  CHECK(aside.yields());
  CHECK(aside.shares());
  CHECK_FALSE(aside.fills({0, 1}));
  aside.treat(Treatment::kShare);
  CHECK_FALSE(aside.yields());
  CHECK(aside.shares());
  CHECK(aside.fills({0, 1}));
  aside.treat(Treatment::kFill);
  CHECK_FALSE(aside.shares());
  CHECK(aside.fills({0, 1}));
  CHECK_FALSE(aside.fills({10 * kGranule, 1}));
  aside.treat(Treatment::kKeep);
  CHECK_FALSE(aside.fills({0, 1}));
  aside.took(3 * kGranule);
  CHECK(aside.needed_with(5 * kGranule, {0, kGranule}) == 12 * kGranule);
  CHECK(aside.needed_with(5 * kGranule, {20 * kGranule, kGranule}) == 13 * kGranule);
  aside.gave(3 * kGranule);
  CHECK(aside.needed_with(5 * kGranule, {0, kGranule}) == 15 * kGranule);
}

}  // namespace memoir
