// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/heap/lifetime/lifetime_heap.h"
#include "support/rounds.h"

namespace memoir {

namespace {

constexpr Size kSlot = LifetimeHeap::kSlot, kRegion = LifetimeHeap::kRegion, kPage = LifetimeHeap::kPage;
constexpr auto kShort = LifetimeClass::kShort, kLong = LifetimeClass::kLong;

/// Gives back everything that the heap offers; bytes.
Size give_back_all(LifetimeHeap& heap, double fullest = 1.1) {
  LifetimeHeap::Release releases[64];
  Size bytes = 0;
  while (const size_t count = heap.take_releases(releases, 64, ~Size{0} >> 1, fullest)) {
    for (size_t i = 0; i < count; ++i) {
      bytes += releases[i].range.size;
      heap.released(releases[i].range, true);
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("size classes: every size fits its class, and wastes less than an eighth") {
  for (Size size = 1; size <= size_classes::kLargest; ++size) {
    const size_t size_class = size_classes::class_of(size);
    const Size got = size_classes::kTables.size[size_class];
    REQUIRE(got >= size);
    REQUIRE(got - size < std::max<Size>(16, got / 8));
    if (size_class > 0) REQUIRE(size_classes::kTables.size[size_class - 1] < size);
  }
  for (size_t i = 0; i < size_classes::kCount; ++i) {
    const Size bytes = size_classes::kTables.slots[i] * kSlot;
    CHECK(size_classes::kTables.size[i] % 16 == 0);
    CHECK((bytes - size_classes::kTables.blocks[i] * Size{size_classes::kTables.size[i]}) * 16 <= bytes);
  }
}

TEST_CASE("slot bits: runs are found as a loop would find them") {
  std::mt19937 random(7);
  for (int round = 0; round < rounds(2000); ++round) {
    SlotBits bits;
    bool plain[256] = {};
    for (int i = 0; i < 256; ++i) {
      plain[i] = random() % 8 != 0;
      if (plain[i]) bits = bits | SlotBits::run(i, 1);
    }
    const size_t wanted = 1 + random() % 40;
    size_t expected = SlotBits::kNone;
    for (size_t at = 0; at + wanted <= 256 && expected == SlotBits::kNone; ++at) {
      if (std::all_of(plain + at, plain + at + wanted, [](bool one) { return one; })) expected = at;
    }
    REQUIRE(bits.first_run(wanted) == expected);
    if (expected != SlotBits::kNone) REQUIRE(bits.run_length(expected) >= wanted);
  }
}

TEST_CASE("a heap without regions has no room, and one with a region has all of it") {
  LifetimeHeap heap;
  CHECK_FALSE(heap.allocate(kSlot, kShort, false));
  REQUIRE(heap.add_regions(1));
  const auto whole = heap.allocate(kRegion, kShort, false);
  REQUIRE(whole);
  CHECK(whole.offset == 0);
  CHECK(whole.zero);
  CHECK(whole.new_region);
  CHECK_FALSE(heap.allocate(kSlot, kShort, false));
  CHECK_FALSE(heap.allocate(0, kShort, false));
  CHECK_FALSE(heap.allocate(kSlot + 1, kShort, false));
  CHECK_FALSE(heap.free({kSlot, kRegion}));
  CHECK(heap.free({0, kRegion}));
  CHECK_FALSE(heap.free({0, kRegion}));
  CHECK_FALSE(heap.allocate(kSlot, kShort, false).zero);  // its pages hold what was there
}

TEST_CASE("classes lie in regions of their own, and the emptied ones go back whole") {
  LifetimeHeap heap;
  REQUIRE(heap.add_regions(8));
  std::vector<Offset> lives, dies;
  for (int i = 0; i < 256; ++i) {
    lives.push_back(heap.allocate(kSlot, kLong, false).offset);
    for (int k = 0; k < 3; ++k) dies.push_back(heap.allocate(kSlot, kShort, false).offset);
  }
  for (const Offset a : lives) {
    for (const Offset b : dies) REQUIRE(a / kRegion != b / kRegion);
  }
  for (const Offset offset : dies) REQUIRE(heap.free({offset, kSlot}));
  CHECK(give_back_all(heap) == 3 * kRegion);
  CHECK(heap.figures().resident == kRegion);
  CHECK(heap.consistent());
}

TEST_CASE("a class without room borrows memory that is there before the heap grows") {
  LifetimeHeap heap;
  REQUIRE(heap.add_regions(4));
  std::vector<Offset> spans;
  for (int i = 0; i < 256; ++i) spans.push_back(heap.allocate(kSlot, kLong, false).offset);
  for (int i = 0; i < 256; i += 2) heap.free({spans[i], kSlot});
  const auto borrowed = heap.allocate(kSlot, kShort, false);
  CHECK(borrowed.offset / kRegion == spans[0] / kRegion);
  CHECK(heap.figures().borrowed == 1);
  // Slots whose pages are gone are not borrowed: they cost as much as a new region's.
  give_back_all(heap);
  const auto grown = heap.allocate(kSlot, kShort, false);
  CHECK(grown.new_region);
  // Nor is anything while there is an empty region that had memory once.
  heap.free({grown.offset, kSlot});
  give_back_all(heap);
  heap.free({spans[1], kSlot});
  CHECK(heap.allocate(kSlot, kShort, false).new_region);
  CHECK(heap.figures().borrowed == 1);
}

TEST_CASE("the fullest region with room is taken") {
  LifetimeHeap heap;
  REQUIRE(heap.add_regions(2));
  std::vector<Offset> spans;
  for (int i = 0; i < 512; ++i) spans.push_back(heap.allocate(kSlot, kShort, false).offset);
  for (const Offset offset : spans) {
    const bool first = offset < kRegion;
    if (offset / kSlot % (first ? 4 : 32) == 0) heap.free({offset, kSlot});
  }
  for (int i = 0; i < 8; ++i) CHECK(heap.allocate(kSlot, kShort, false).offset >= kRegion);
  CHECK(heap.allocate(kSlot, kShort, false).offset < kRegion);
}

TEST_CASE("dense regions keep their free slots, and slots that are being given back belong to nobody") {
  LifetimeHeap heap;
  REQUIRE(heap.add_regions(1));
  std::vector<Offset> spans;
  for (int i = 0; i < 256; ++i) spans.push_back(heap.allocate(kSlot, kShort, true).offset);
  for (int i = 0; i < 8; ++i) heap.free({spans[i * 2], kSlot});
  LifetimeHeap::Release releases[16];
  CHECK(heap.take_releases(releases, 16, ~Size{0} >> 1, 0.9) == 0);
  REQUIRE(heap.take_releases(releases, 16, ~Size{0} >> 1, 1.1) == 8);
  CHECK(releases[0].breaks_huge);
  CHECK_FALSE(releases[1].breaks_huge);
  CHECK_FALSE(heap.allocate(kSlot, kShort, false));
  for (const auto& release : releases) {
    if (release.range.size != 0) heap.released(release.range, true);
  }
  const auto again = heap.allocate(kSlot, kShort, false);
  CHECK(again);
  CHECK(again.zero);
  CHECK(heap.consistent());
}

TEST_CASE("a region of which the system takes nothing rests, twice as long each time") {
  LifetimeHeap heap;
  REQUIRE(heap.add_regions(2));
  heap.allocate(kSlot, kShort, true);
  heap.free({0, kSlot});
  LifetimeHeap::Release release;
  size_t tries = 0;
  for (int round = 0; round < 2000; ++round) {
    heap.begin_round();
    while (heap.take_releases(&release, 1, ~Size{0} >> 1, 1.1) == 1) {  // ends although nothing goes
      ++tries;
      heap.released(release.range, false);
    }
  }
  CHECK(tries >= 10);  // 2 + 4 + ... + 512, then one in 512
  CHECK(tries <= 14);
  CHECK(heap.take_releases(&release, 1, ~Size{0} >> 1, 1.1, true) == 1);  // who asks for everything
  heap.released(release.range, false);
  CHECK(heap.take_releases(&release, 1, ~Size{0} >> 1, 1.1, true) == 0);  // once
  const auto again = heap.allocate(kSlot, kShort, false);
  CHECK_FALSE(again.zero);  // it holds what it held
  heap.free({again.offset, kSlot});
  for (int round = 0; round < 2; ++round) heap.begin_round();
  REQUIRE(heap.take_releases(&release, 1, ~Size{0} >> 1, 1.1, true) == 1);
  heap.released(release.range, true);
  CHECK_FALSE(heap.rests(0, false));
  CHECK(heap.consistent());
}

TEST_CASE("a region that filled up again becomes a huge page again") {
  LifetimeHeap heap;
  REQUIRE(heap.add_regions(1));
  std::vector<Offset> spans;
  for (int i = 0; i < 256; ++i) spans.push_back(heap.allocate(kSlot, kShort, true).offset);
  CHECK(heap.figures().huge == kRegion);
  CHECK(heap.take_collapse(0.9, 0.1) == kNoOffset);  // it is one
  heap.break_huge(0);
  heap.pages_gone({0, 64 * kPage});
  CHECK(heap.figures().gone_in_spans == 64 * kPage);
  CHECK(heap.gone_pages({0, 64 * kPage}) == ~std::uint64_t{0});
  CHECK(heap.take_collapse(0.9, 0.1) == kNoOffset);  // an eighth of it is gone
  REQUIRE(heap.take_collapse(0.9, 0.2) == 0);
  CHECK(heap.take_collapse(0.9, 0.2) == kNoOffset);  // it is under way
  heap.collapsed(0, true);
  CHECK(heap.figures().huge == kRegion);
  CHECK(heap.figures().gone_in_spans == 0);
  CHECK(heap.consistent());
}

TEST_CASE("random walks: spans never overlap, and the counts are right") {
  for (unsigned seed = 1; seed <= rounds(8u); ++seed) {
    std::mt19937 random(seed);
    LifetimeHeap heap;
    std::map<Offset, Size> live;
    std::vector<Range> held;
    std::set<Offset> away;  // regions whose addresses went back
    const auto check_free = [&](Range range) {
      auto next = live.lower_bound(range.begin);
      if (next != live.end()) REQUIRE(range.end() <= next->first);
      if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= range.begin);
    };
    for (int step = 0; step < 20000; ++step) {
      const unsigned action = random() % 100;
      if (action < 50) {
        const Size size = (1 + random() % (random() % 16 == 0 ? 128 : 8)) * kSlot;
        auto placed = heap.allocate(size, random() % 3 == 0 ? kLong : kShort, random() % 2 == 0);
        if (!placed) {
          if (heap.regions() < 24) {
            REQUIRE(heap.add_regions(1 + random() % 3, random() % 4 == 0));
          } else if (const Offset region = heap.away(); region != kNoOffset) {
            REQUIRE(away.erase(region) == 1);
            heap.came_back(region, random() % 8 == 0);
          }
          continue;
        }
        const Range range{placed.offset, size};
        CHECK(range.begin / kRegion == (range.end() - 1) / kRegion);
        check_free(range);
        for (const Range& one : held) REQUIRE_FALSE(range.overlaps(one));
        CHECK(away.count(align_down(range.begin, kRegion)) == 0);
        live[range.begin] = size;
      } else if (action < 94 && !live.empty()) {
        auto victim = live.lower_bound(random() % (heap.regions() * kRegion));
        if (victim == live.end()) victim = live.begin();
        REQUIRE(heap.free({victim->first, victim->second}));
        live.erase(victim);
      } else if (action < 96) {
        LifetimeHeap::Release releases[8];
        const size_t count = heap.take_releases(releases, 8, random() % (4 * kMiB), 0.1 * (random() % 11));
        for (size_t i = 0; i < count; ++i) {
          check_free(releases[i].range);
          held.push_back(releases[i].range);
        }
      } else if (action < 98) {
        if (random() % 2) heap.begin_round();
        for (const Range& range : held) heap.released(range, random() % 4 != 0);
        held.clear();
        if (const Offset region = heap.take_away(); region != kNoOffset) {
          check_free({region, kRegion});
          CHECK(away.insert(region).second);
        }
      } else if (!live.empty()) {
        const auto& [offset, size] = *live.begin();
        heap.break_huge(offset);
        heap.pages_gone({offset, kPage});
        if (random() % 2) heap.pages_back({offset, kPage});
        if (const Offset region = heap.take_collapse(0.3, 0.9); region != kNoOffset)
          heap.collapsed(region, random() % 2 == 0);
      }
      if (step % 500 == 0) REQUIRE_MESSAGE(heap.consistent(), "seed " << seed << " step " << step);
    }
    for (const Range& range : held) heap.released(range, true);
    for (const auto& [offset, size] : live) REQUIRE(heap.free({offset, size}));
    for (int round = 0; round < 512; ++round) heap.begin_round();
    give_back_all(heap);
    CHECK(heap.figures().used == 0);
    CHECK(heap.figures().resident == 0);
    CHECK(heap.consistent());
  }
}

}  // namespace memoir
