// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_row.h"

#include <array>
#include <map>
#include <random>

#include "doctest/doctest.h"
#include "small_row.h"

namespace memoir {

namespace {

using Index = PoolRow::Index;
using State = PoolRow::State;
using Zone = PoolRow::Zone;

constexpr Size kSmall = 4096, kRowGranule = 16 * kKiB, kRowCapacity = 64 * kRowGranule;

// The row as it must be at any time: neighbours meet, nothing lies next to its like, all bytes are there.
void check_row(const PoolRow& row, bool joined) {
  Offset end = 0;
  Index before = 0;
  for (Index index = row.head(); index != 0; before = index, index = row[index].after) {
    const PoolRow::Block& block = row[index];
    REQUIRE(block.range.begin == end);
    REQUIRE(block.range.size > 0);
    REQUIRE(block.range.size % kAlignment == 0);
    REQUIRE(block.before == before);
    REQUIRE(row.block_at(block.range.begin) == index);
    REQUIRE(row.block_at(block.range.end() - 1) == index);
    if (joined && block.state == State::kFree) REQUIRE(row[before].bits() != block.bits());
    end = block.range.end();
  }
  REQUIRE(end == kRowCapacity);
}

// Makes all of the row one free block of stream 0, which nobody has used.
void open_all(PoolRow& row) {
  REQUIRE(row.begin(kRowCapacity));
  REQUIRE(row.reserve_records(8));
  const Index all = row.take_window(row.head(), {0, kRowCapacity}, kRowGranule, kRowCapacity, row.slot_of(0));
  REQUIRE(row.take_live(0) == all);
  row.put_back(all);
  REQUIRE(row.find(row.slot_of(0), Zone::kCommon, kRowCapacity) == all);
}

// At the end that the heap would choose.
Index take_part(PoolRow& row, Index index, Size size, Size asked, std::uint16_t slot) {
  return row.take_part(index, size, asked, slot, size < kSmall ? PoolRow::End::kHigh : PoolRow::End::kLow);
}

void give_back(PoolRow& row, Index index, Tick moment) {
  REQUIRE(row.take_live(row[index].range.begin) == index);
  row[index].moment = moment;
  row.put_back(index);
}

}  // namespace

TEST_CASE("an object takes the start of a free block or its end") {
  PoolRow row(kAlignment, kSmall);
  open_all(row);
  const std::uint16_t slot = row.slot_of(0);
  REQUIRE(row.reserve_records(8));
  const Index large = take_part(row, row.find(slot, Zone::kCommon, kSmall), kSmall, kSmall - 7, slot);
  CHECK(row[large].range.begin == 0);
  CHECK(row[large].asked == kSmall - 7);
  const Index small = take_part(row, row.find(slot, Zone::kCommon, kAlignment), kAlignment, 1, slot);
  CHECK(row[small].range.end() == kRowCapacity);
  CHECK(row.find_live(0) == large);
  CHECK(row.find_live(kAlignment) == 0);
  CHECK(row.find(slot, Zone::kCommon, kRowCapacity) == 0);
  check_row(row, true);
  give_back(row, large, 1);
  give_back(row, small, 1);
  CHECK(row[small].state == State::kRecent);
  CHECK(row.take_recent(kAlignment, 2, slot) == small);
  give_back(row, small, 1);
  row.forget_recent();
  check_row(row, true);
  CHECK(row[row.head()].range.size == kRowCapacity);
}

TEST_CASE("what different streams freed stays separate until it is joined, and is the later one's then") {
  PoolRow row(kAlignment, kSmall);
  open_all(row);
  REQUIRE(row.reserve_records(16));
  const std::uint16_t first = row.slot_of(0), second = row.slot_of(7);
  CHECK(first != second);
  CHECK(row.stream_of(second) == 7);
  CHECK(row.slots() == 2);
  const Index left = take_part(row, row.find(first, Zone::kCommon, kSmall), kSmall, kSmall, first);
  const Index right = take_part(row, row.find(first, Zone::kCommon, kSmall), kSmall, kSmall, second);
  give_back(row, left, 3);
  give_back(row, right, 4);
  check_row(row, true);
  CHECK(row[left].range.size == kSmall);
  CHECK(row.find(second, Zone::kCommon, kSmall) != 0);
  row.join_free(left, 5);
  CHECK(row[left].slot == second);
  CHECK(row[left].moment == 5);
  CHECK(row[left].range.size >= 2 * kSmall);
  check_row(row, true);
}

TEST_CASE("what lies side by side joins when all that was queued is done, whatever streams it is of") {
  PoolRow row(kAlignment, 0);
  open_all(row);
  REQUIRE(row.reserve_records(32));
  const std::uint16_t slots[] = {row.slot_of(0), row.slot_of(1)};
  Index parts[6];
  for (int i = 0; i < 6; ++i)
    parts[i] = take_part(row, row.find(slots[0], Zone::kCommon, kSmall), kSmall, kSmall, slots[i % 2]);
  for (int i = 0; i < 4; ++i) give_back(row, parts[i], 1 + i);
  CHECK(row.find(slots[1], Zone::kCommon, 2 * kSmall) == 0);
  row.note_done(4);
  check_row(row, true);
  // All four are one block now, of the stream that freed last.
  CHECK(row[row.head()].range == Range{0, 4 * kSmall});
  CHECK(row.find(slots[1], Zone::kCommon, 4 * kSmall) == row.head());
  // So is what is freed next to it; but not what another stream freed since.
  give_back(row, parts[4], 5);
  CHECK(row[row.head()].range == Range{0, 5 * kSmall});
  CHECK(row[row.head()].moment == 5);
  give_back(row, parts[5], 6);
  CHECK(row[row.head()].range == Range{0, 5 * kSmall});
  row.note_done(6);
  CHECK(row[row.head()].range.size == kRowCapacity);
  check_row(row, true);
}

TEST_CASE(
    "holes are found by the bytes of their room, which grows at once and shrinks when it is looked at") {
  PoolRow row(kAlignment, 0);
  open_all(row);
  REQUIRE(row.reserve_records(32));
  const std::uint16_t slot = row.slot_of(0);
  // | live | 4 granules | live | ...
  const auto take = [&](Size size) {
    return take_part(row, row.find(slot, Zone::kCommon, size), size, size, slot);
  };
  take(kRowGranule);
  const Index middle = take(4 * kRowGranule);
  const Index next = take(kRowGranule);
  take(kRowGranule);
  give_back(row, middle, 1);
  const Index hole = row.make_hole(middle, {2 * kRowGranule, kRowGranule});
  row.make_hole(row.find(slot, Zone::kCommon, 40 * kRowGranule), {32 * kRowGranule, kRowGranule});
  std::array<Index, 4> found{};
  CHECK(row.room_of(hole).range == Range{kRowGranule, 4 * kRowGranule});
  CHECK(row.has_smaller_room(Zone::kCommon, 4 * kRowGranule, 5 * kRowGranule));
  CHECK_FALSE(row.has_smaller_room(Zone::kCommon, 4 * kRowGranule, 4 * kRowGranule));
  REQUIRE(row.find_holes(Zone::kCommon, 4 * kRowGranule, found) == 2);
  CHECK(found[0] == hole);
  give_back(row, next, 2);
  REQUIRE(row.find_holes(Zone::kCommon, 5 * kRowGranule, found) == 2);
  CHECK(found[0] == hole);
  CHECK(row.fits_still(hole, 5 * kRowGranule));
  // What lies behind the hole is taken: the hole is found for its old size once more.
  const Index behind = row[hole].after;
  take_part(row, behind, row[behind].range.size, 1, slot);
  CHECK(row.find_holes(Zone::kCommon, 3 * kRowGranule, found) == 2);
  CHECK_FALSE(row.fits_still(hole, 3 * kRowGranule));
  CHECK(row.find_holes(Zone::kCommon, 3 * kRowGranule, found) == 1);
  CHECK(row.fits_still(hole, 2 * kRowGranule));
}

TEST_CASE("a hole is made in the middle of a free block, and a window opens it again") {
  PoolRow row(kAlignment, kSmall);
  open_all(row);
  const std::uint16_t slot = row.slot_of(0);
  REQUIRE(row.keep_starts());
  REQUIRE(row.reserve_records(16));
  const Index hole = row.make_hole(row.head(), {kRowGranule, kRowGranule});
  CHECK(row[hole].state == State::kHole);
  check_row(row, true);
  const Index object = row.take_window(row.head(), {kRowGranule / 2, kRowGranule}, kRowGranule, 99, slot);
  CHECK(row[object].range == Range{kRowGranule / 2, kRowGranule});
  CHECK(row.find_live(kRowGranule / 2) == object);
  CHECK(row.block_at(kRowGranule) == object);
  check_row(row, true);
  give_back(row, object, 1);
  check_row(row, true);
  CHECK(row[row.head()].range.size ==
        kRowCapacity);  // what a window opened is committed to its granule's end
}

TEST_CASE("random walks of a row, next to a map") {
  for (const bool keeps_starts : {false, true}) {
    CAPTURE(keeps_starts);
    PoolRow row(kAlignment, kSmall);
    open_all(row);
    if (keeps_starts) REQUIRE(row.keep_starts());
    std::map<Offset, Size> live;
    std::mt19937_64 random(1);
    for (int i = 0; i < 5000; ++i) {
      REQUIRE(row.reserve_records(8));
      const std::uint16_t slot = row.slot_of(random() % 3);
      if (random() % 2 == 0 || live.empty()) {
        const Size asked = 1 + random() % (random() % 2 == 0 ? 2 * kAlignment : 4 * kSmall);
        const Size size = align_up(asked, kAlignment);
        Index index = size < kSmall ? row.take_recent(size, asked, slot) : 0;
        if (index == 0) {
          Index found = 0;
          for (std::uint16_t of = 0; of < row.slots() && found == 0; ++of)
            found = row.find(of, Zone::kCommon, size);
          if (found == 0) continue;
          REQUIRE(row[found].range.size >= size);
          index = take_part(row, found, size, asked, slot);
        }
        const Range range = row[index].range;
        REQUIRE(range.size == size);
        const auto next = live.lower_bound(range.begin);
        REQUIRE((next == live.end() || range.end() <= next->first));
        REQUIRE((next == live.begin() || std::prev(next)->first + std::prev(next)->second <= range.begin));
        live[range.begin] = size;
      } else {
        auto one = live.lower_bound(random() % kRowCapacity);
        if (one == live.end()) one = live.begin();
        const Index index = row.take_live(one->first);
        REQUIRE(index != 0);
        REQUIRE(row[index].range == Range{one->first, one->second});
        row[index].moment = static_cast<Tick>(i + 1);
        row.put_back(index);
        live.erase(one);
      }
      if (i % 50 == 0) {
        row.forget_recent();
        check_row(row, true);
      }
    }
  }
}

}  // namespace memoir
