// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_windows.h"

#include <random>
#include <utility>
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

/// The best window, by a look at every block and every place where one could begin or end.
static Window best_of_all(const PoolRow& row, const PoolWindows& windows, const PoolWindows::Wish& wish) {
  Window best;
  for (Index index = row.head(); index != 0; index = row[index].after) {
    if (row[index].state == PoolRow::State::kLive) continue;
    for (Offset begin = row[index].range.begin; begin < row[index].range.end(); begin += kAlignment) {
      if (begin % wish.alignment != 0 || begin + wish.size > kCapacity) continue;
      Window window{begin, index, 0, 0};
      bool fits = true;
      for (Index at = index; at != 0 && row[at].range.begin < begin + wish.size; at = row[at].after) {
        fits &= row[at].state != PoolRow::State::kLive;
        window.need += windows.need_of(row[at], {begin, wish.size});
        window.waits += !windows.is_ordered(row[at], wish.slot);
      }
      const bool is_better = window.need != best.need ? window.need < best.need : window.waits < best.waits;
      if (fits && (wish.waits || window.waits == 0) && is_better) best = window;
    }
  }
  return best;
}

TEST_CASE("around holes and the largest free blocks lies the best window that there is") {
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
      const Window best = best_of_all(example.row, example.windows, wish);
      CHECK((window.first != 0) == (best.first != 0));
      if (best.first != 0) {
        CHECK(window.need == best.need);
        CHECK(window.waits == best.waits);
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
