// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_windows.h"

#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"

namespace memoir {

namespace {

using Index = PoolRow::Index;
using Window = PoolWindows::Window;
using Zone = PoolRow::Zone;

constexpr Size kAlignment = 512, kGranule = 4096, kCapacity = 64 * kGranule;

// Streams of an even moment are ordered already.
struct EvenOrder final : StreamOrder {
  bool is_ordered(StreamId, Tick moment, StreamId) noexcept override { return moment % 2 == 0; }
  bool order(StreamId, Tick, StreamId) noexcept override { return true; }
};

// | live 1 | free 2 granules, stream 0 | live 1 | free 1, stream 5 | hole ...
struct Example {
  explicit Example(Tick moment = 1) {
    REQUIRE(row.begin(kCapacity));
    REQUIRE(row.reserve_records(32));
    take({0, kGranule}, 0);
    const Index first = take({kGranule, 2 * kGranule}, 0);
    take({3 * kGranule, kGranule}, 0);
    const Index second = take({4 * kGranule, kGranule}, 5);
    free(first, 1);
    free(second, moment);
  }
  Index take(Range range, StreamId stream) {
    return row.take_window(row.block_at(range.begin), range, kGranule, range.size, row.slot_of(stream));
  }
  void free(Index index, Tick moment) {
    REQUIRE(row.take_live(row[index].range.begin) == index);
    row[index].moment = moment;
    row.put_back(index);
  }
  PoolWindows::Wish wish(Size size, bool waits = true, Size alignment = kAlignment) {
    return {size, alignment, row.slot_of(0), waits};
  }

  SimArena arena{kCapacity};  // in granules of 4 KiB
  EvenOrder order;
  PoolRow row{kAlignment, 0};
  PoolWindows windows{row, arena, &order};
};

}  // namespace

TEST_CASE("the window that needs the fewest granules, though it lies higher or waits") {
  Example example;
  const Window here = example.windows.find(example.wish(2 * kGranule), Zone::kCommon);
  CHECK(here.begin == kGranule);
  CHECK(here.need == 0);
  CHECK(here.waits == 0);
  // Three granules: one is free, behind it is the hole.
  const Window wide = example.windows.find(example.wish(3 * kGranule), Zone::kCommon);
  CHECK(wide.begin == 4 * kGranule);
  CHECK(wide.need == 2 * kGranule);
  CHECK(wide.waits == 1);
}

TEST_CASE("without waiting, what another stream may still use is left out") {
  Example example;
  const Window window = example.windows.find(example.wish(3 * kGranule, false), Zone::kCommon);
  CHECK(window.begin == 5 * kGranule);
  CHECK(window.need == 3 * kGranule);
  Example ordered(2);
  CHECK(ordered.windows.find(ordered.wish(3 * kGranule, false), Zone::kCommon).begin == 4 * kGranule);
  PoolWindows orderless(example.row, example.arena, nullptr);
  CHECK(orderless.find(example.wish(3 * kGranule), Zone::kCommon).begin == 5 * kGranule);
}

TEST_CASE("alignment is kept, and what is nowhere is not found") {
  Example example;
  const Window aligned = example.windows.find(example.wish(kGranule, true, 2 * kGranule), Zone::kCommon);
  CHECK(aligned.begin == 2 * kGranule);
  CHECK(aligned.need == 0);
  CHECK(example.windows.find(example.wish(kCapacity), Zone::kCommon).first == 0);
  CHECK(example.windows.find(example.wish(kGranule), Zone::kAside).first == 0);
  const Window best = example.windows.find(example.wish(kGranule), Zone::kCommon);
  CHECK(example.windows.find(example.wish(kGranule), Zone::kAside, best).begin == best.begin);
}

TEST_CASE("a hole needs whole granules, but those that the range touches alone") {
  Example example;
  const Index hole = example.row.block_at(5 * kGranule);
  CHECK(example.windows.need_of(example.row[hole], {5 * kGranule, 1}) == kGranule);
  CHECK(example.windows.need_of(example.row[hole], {6 * kGranule - 1, 2}) == 2 * kGranule);
  CHECK(example.windows.need_of(example.row[hole], {4 * kGranule, kGranule}) == 0);
  CHECK(example.windows.need_of(example.row[example.row.block_at(kGranule)], {kGranule, kGranule}) == 0);
}

}  // namespace memoir
