// SPDX-License-Identifier: Apache-2.0
//
// memoir's malloc as a heap, for simulations, and the baselines with size classes.
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/malloc/malloc_heap.h"
#include "memoir/heap/peers/size_class_heap.h"

namespace memoir {

namespace {

constexpr Tick kRound = UpkeepRules::kRound;

/// A server: requests come and go, and a tenth of each wave stays for three more.
struct Server {
  Heap& heap;
  std::mt19937_64 random{5};
  Tick now = 0;
  std::vector<std::vector<Offset>> kept = {};
  Size peak_live = 0;

  void wave(Size bytes, std::uint8_t told_short, std::uint8_t told_long, SiteId long_site) {
    std::vector<Offset> passing;
    kept.push_back({});
    for (Size sum = 0; sum < bytes;) {
      const Size size = 16 + random() % 500;
      const bool stays = random() % 10 == 0;
      const Offset offset = heap.allocate(
          {.size = size, .site = stays ? long_site : 1, .lifetime = stays ? told_long : told_short});
      REQUIRE(offset != kNoOffset);
      (stays ? kept.back() : passing).push_back(offset);
      sum += size;
      heap.tick(now += 2000);
    }
    peak_live = std::max(peak_live, heap.live());
    for (const Offset offset : passing) REQUIRE(heap.free(offset));
    if (kept.size() > 3) {
      for (const Offset offset : kept[kept.size() - 4]) REQUIRE(heap.free(offset));
    }
    for (int i = 0; i < 60; ++i) heap.tick(now += kRound);
  }
};

constexpr auto kUnsaid = Request::kNoLifetime;

}  // namespace

TEST_CASE("what the classes are worth: told, learned, one class") {
  const auto settled = [](std::uint8_t told_short, std::uint8_t told_long, bool split) {
    SimArena arena(4 * kGiB);
    MallocHeap heap(arena, {.split = split, .sample = 32 * kKiB, .split_from = 4 * kMiB});
    REQUIRE(heap.ok());
    Server server{heap};
    for (int i = 0; i < 12; ++i) server.wave(32 * kMiB, told_short, told_long, 2);
    CHECK(heap.regions().consistent());
    CHECK(static_cast<double>(arena.peak_committed()) < 1.6 * static_cast<double>(server.peak_live));
    return static_cast<double>(arena.committed()) / static_cast<double>(heap.live());
  };
  const double told = settled(0, 1, true), learned = settled(kUnsaid, kUnsaid, true),
               one = settled(kUnsaid, kUnsaid, false);
  MESSAGE("resident / live: told " << told << ", learned " << learned << ", one class " << one);
  CHECK(told < 1.35);
  CHECK(told < learned);
  CHECK(learned < 0.9 * one);
}

TEST_CASE("a heap that shrinks gives back while the program is silent, and trim gives all") {
  SimArena arena(4 * kGiB);
  MallocHeap heap(arena);
  std::vector<Offset> blocks;
  for (int i = 0; i < 300'000; ++i) blocks.push_back(heap.allocate({.size = 256, .site = 1}));
  heap.tick(kRound);
  const Size full = arena.committed();
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 100 != 0) CHECK(heap.free(blocks[i]));
  }
  Tick now = kRound;
  for (int i = 0; i < 60; ++i) heap.tick(now += kRound);
  CHECK(arena.committed() < full / 2);
  for (size_t i = 0; i < blocks.size(); i += 100) CHECK(heap.free(blocks[i]));
  heap.trim();
  CHECK(arena.committed() == 0);
}

TEST_CASE("a full machine is an answer: nothing is lost by it") {
  for (unsigned seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    SimArena arena(kGiB, {.limit = 40 * kMiB});
    MallocHeap heap(arena, {.background_from = 8 * kMiB});
    std::vector<Offset> live;
    Tick now = 0;
    size_t refused = 0;
    for (int i = 0; i < 30'000; ++i) {
      heap.tick(now += kRound / 16);
      if (random() % 1000 < (i / 6'000 % 2 == 0 ? 700u : 300u)) {
        const Offset offset =
            heap.allocate({.size = 1 + random() % (Size{64} << random() % 14), .site = random() % 9});
        if (offset != kNoOffset) live.push_back(offset);
        else ++refused;
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        REQUIRE(heap.free(live.back()));
        live.pop_back();
      }
    }
    CHECK(refused > 0);
    CHECK(heap.regions().consistent());
    CHECK(arena.peak_committed() <= 40 * kMiB);
    for (const Offset offset : live) CHECK(heap.free(offset));
    heap.trim();
    CHECK(arena.committed() == 0);
  }
}

TEST_CASE("baselines: a page has memory as long as a span touches it") {
  for (const Size page : {8 * kKiB, 2 * kMiB}) {
    CAPTURE(page);
    SimArena arena(256 * kMiB, {.granule = 4 * kKiB});
    SizeClassHeap heap(arena, {.page = page});
    REQUIRE(heap.ok());
    std::vector<Offset> blocks;
    for (Size sum = 0; sum < 32 * kMiB; sum += 64) blocks.push_back(heap.allocate({.size = 64}));
    CHECK(arena.committed() == 32 * kMiB);
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i % (kMiB / 64) != 0) heap.free(blocks[i]);  // one in each MiB stays
    }
    heap.trim();
    CHECK(arena.committed() == (page == 2 * kMiB ? 32 * kMiB : 32 * 8 * kKiB));
    const Offset large = heap.allocate({.size = 10 * kMiB, .alignment = kMiB});
    CHECK(large % kMiB == 0);
    CHECK(heap.free(large));
  }
  SimArena arena(16 * kMiB);
  CHECK_FALSE(SizeClassHeap(arena, {.page = 3}).ok());
  CHECK_FALSE(SizeClassHeap(arena, {.page = 4096}).ok());
}

TEST_CASE("a load that comes and goes between two looks was a load: what it left is low") {
  UpkeepRules rules;
  const auto round = [&](Size used, Size live) {
    LifetimeHeap::Figures now;
    now.used = used;
    rules.begin(now);
    rules.saw_live(live);
    rules.end(now);
  };
  const Size peak = 200 * kMiB, rest = 60 * kMiB, live = 2 * kMiB;
  SUBCASE("before the first look") { round(rest, live); }
  SUBCASE("after a long calm") {
    for (int i = 0; i < 50; ++i) round(live, live);
    CHECK(rules.high());  // nothing else was ever seen
    round(peak, live);
  }
  for (unsigned i = 0; i <= UpkeepRules::kWindow; ++i) round(rest, live);
  CHECK_FALSE(rules.high());
  // A load that stays is high again.
  for (unsigned i = 0; i <= UpkeepRules::kWindow; ++i) round(peak, peak - peak / 20);
  CHECK(rules.high());
}

}  // namespace memoir
