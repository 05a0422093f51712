// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_windows.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "small_row.h"

namespace memoir {

namespace {

using Index = PoolRow::Index;
using Window = PoolWindows::Window;
using Zone = PoolRow::Zone;

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

TEST_CASE("the window that costs least, though it lies higher or waits") {
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

/// What a window costs, granule by granule; nothing when something lives in it, or it waits and must not.
static std::optional<Size> cost_of(const PoolRow& row, const PoolWindows& windows, Range range,
                                   const PoolWindows::Wish& wish) {
  Size pinned = 0, need = 0, waits = 0;
  for (Offset at = align_down(range.begin, kGranule); at < range.end(); at += kGranule) {
    bool is_pinned = false, lacks = false;
    for (Index index = row.head(); index != 0; index = row[index].after) {
      if (!row[index].range.overlaps({at, kGranule})) continue;
      is_pinned |= row[index].state == PoolRow::State::kLive;
      lacks |= row[index].state == PoolRow::State::kHole;
    }
    pinned += !is_pinned;
    need += lacks;
  }
  Offset begin = 0, end = 0;  // of its room
  for (Index index = row.head(); index != 0; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (block.state == PoolRow::State::kLive && block.range.overlaps(range)) return std::nullopt;
    if (block.state != PoolRow::State::kLive && end == block.range.begin) {
      end = block.range.end();
    } else if (block.state != PoolRow::State::kLive) {
      begin = block.range.begin;
      end = block.range.end();
    } else if (end != 0 && end > range.begin) {
      break;
    }
    if (!block.range.overlaps(range)) continue;
    waits += !windows.is_ordered(block, wish.slot);
  }
  if (waits != 0 && !wish.waits) return std::nullopt;
  const Size left = std::min(end - begin - range.size, PoolWindows::kMostLeft * kGranule);
  return PoolWindows::kPin * pinned + PoolWindows::kNeed * need + PoolWindows::kLeft * left / kGranule +
         PoolWindows::kWait * waits;
}

/// Whether there is a window at all, and the least cost of one that begins or ends where a hole does, other
/// than that of the addresses at the end, which nobody has used.
static std::pair<bool, Size> least_cost(const PoolRow& row, const PoolWindows& windows,
                                        const PoolWindows::Wish& wish) {
  bool any = false;
  Size least = ~Size{0};
  for (Offset begin = 0; begin + wish.size <= kCapacity; begin += wish.alignment)
    any |= cost_of(row, windows, {begin, wish.size}, wish).has_value();
  for (Index index = row.head(); index != 0; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (block.state != PoolRow::State::kHole || block.after == 0) continue;
    for (const Offset begin :
         {align_up(block.range.begin, wish.alignment),
          align_down(block.range.end() - std::min(block.range.end(), wish.size), wish.alignment)}) {
      if (begin + wish.size > kCapacity) continue;
      least = std::min(least, cost_of(row, windows, {begin, wish.size}, wish).value_or(~Size{0}));
    }
  }
  return {any, least};
}

TEST_CASE("a window is found where there is one; none at a hole costs less") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Example example;
    std::mt19937_64 random(seed);
    std::vector<Index> live;
    REQUIRE(example.row.reserve_records(2000));
    for (int step = 0; step < 120; ++step) {
      const auto stream = static_cast<StreamId>(seed % 2 == 0 ? 0 : random() % 3);
      PoolWindows::Wish wish{kAlignment * (1 + random() % 40), kAlignment << random() % 3,
                             example.row.slot_of(stream), random() % 2 == 0};
      const Window window = example.windows.find(wish, Zone::kCommon);
      const auto [any, least] = least_cost(example.row, example.windows, wish);
      CHECK((window.first != 0) == any);
      if (window.first != 0) {
        const auto cost = cost_of(example.row, example.windows, {window.begin, wish.size}, wish);
        REQUIRE(cost.has_value());
        // Blocks of three streams make rooms that are longer than anybody looks.
        if (seed % 2 == 0) {
          CHECK(*cost == window.cost);
          CHECK(window.cost <= least);
        }
      }
      if (window.first != 0 && random() % 2 == 0) {
        live.push_back(
            example.row.take_window(window.first, {window.begin, wish.size}, kGranule, wish.size, wish.slot));
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        example.free(live.back(), 1 + random() % 2);
        live.pop_back();
      }
      // Some idle memory goes elsewhere.
      for (Index index = example.row.head(); index != 0 && random() % 4 == 0;
           index = example.row[index].after) {
        const PoolRow::Block& block = example.row[index];
        const Offset begin = align_up(block.range.begin, kGranule),
                     end = align_down(block.range.end(), kGranule);
        if (block.state != PoolRow::State::kFree || begin >= end) continue;
        example.row.make_hole(index, {begin, end - begin});
        break;
      }
    }
  }
}

}  // namespace memoir
