// SPDX-License-Identifier: Apache-2.0
//
// Simulated mapped memory and segments do what the device's do: arena/cuda_arena.h and
// device/cuda_segments.h.
#include "memoir/simulate/memory/mapped_memory.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/simulate/memory/sim_segments.h"

namespace memoir {

namespace {

/// The same granule by granule, as plainly as it can be written.
class PlainMappedMemory {
 public:
  PlainMappedMemory(Size granules, Size piece, SimMemory& memory)
      : piece_(std::max(piece, kGranule)), memory_(memory), at_(granules), wanted_(granules) {}
  static constexpr Size kGranule = 2 * kMiB;
  MappedCalls calls;
  Size committed = 0;
  std::multiset<Size> spares;

  bool commit(Range range) {
    const Size first = range.begin / kGranule, last = (range.end() + kGranule - 1) / kGranule;
    Size missing = 0, spare = 0;
    for (Size i = first; i < last; ++i) missing += at_[i] == 0 ? kGranule : 0;
    for (const Size size : spares) spare += size;
    if (missing > memory_.left() + spare) {
      ++calls.refusals;
      return false;
    }
    bool before = true;
    for (Size i = first; i < last; ++i) {
      calls.accesses += before && at_[i] == 0;
      before = at_[i] != 0;
      if (before) continue;
      Size end = i;
      while (end < last && at_[end] == 0) ++end;
      map(i, end);
      committed += (end - i) * kGranule;
      i = end - 1;
    }
    calls.commits += missing != 0;
    for (Size i = first; i < last; ++i) wanted_[i] = true;
    return true;
  }
  void decommit(Range range, bool moves) {
    const Size unmaps = calls.unmaps;
    for (Size i = (range.begin + kGranule - 1) / kGranule; i < range.end() / kGranule; ++i) {
      if (!wanted_[i]) continue;
      wanted_[i] = false;
      const Size id = at_[i];
      const auto first = std::find(at_.begin(), at_.end(), id);
      const auto end = std::find_if(first, at_.end(), [&](Size other) { return other != id; });
      const Size begin = static_cast<Size>(first - at_.begin()), count = static_cast<Size>(end - first);
      if (std::any_of(wanted_.begin() + begin, wanted_.begin() + begin + count, [](bool on) { return on; }))
        continue;
      std::fill(first, end, 0);
      committed -= count * kGranule;
      ++calls.unmaps;
      if (moves || memory_.in_need) spares.insert(count * kGranule);
      else release(count * kGranule);
    }
    calls.decommits += calls.unmaps != unmaps;
  }
  void settle() {
    while (!memory_.in_need && !spares.empty()) release_largest();
  }

 private:
  void map(Size begin, Size end) {
    while (begin < end) {
      const Size most = std::min(piece_ - begin * kGranule % piece_, (end - begin) * kGranule);
      auto found = spares.upper_bound(most);
      Size size = most;
      if (found != spares.begin()) {
        size = *--found;
        spares.erase(found);
      } else {
        while (most > memory_.left()) release_largest();
        memory_.taken += most;
        ++calls.creates;
      }
      ++calls.maps;
      ++ids_;
      for (; size != 0; size -= kGranule) at_[begin++] = ids_;
    }
  }
  void release(Size size) {
    memory_.taken -= size;
    ++memory_.releases;
  }
  void release_largest() {
    release(*spares.rbegin());
    spares.erase(std::prev(spares.end()));
  }

  Size piece_;
  SimMemory& memory_;
  std::vector<Size> at_;  // of each granule: the number of its piece; 0: none
  std::vector<bool> wanted_;
  Size ids_ = 0;
};

}  // namespace

TEST_CASE("ranges at once do what granule by granule does") {
  std::mt19937_64 random(36);
  for (int round = 0; round < 200; ++round) {
    constexpr Size kGranules = 64, kGranule = PlainMappedMemory::kGranule;
    const Size piece = round % 4 == 0 ? 0 : kGranule << random() % 5;
    const Size limit = round % 3 == 0 ? ~Size{0} : (8 + random() % 60) * kGranule;
    SimMemory memory{.limit = limit}, plain_memory{.limit = limit};
    MappedMemory arena(kGranules * kGranule, {.granule = kGranule, .piece = piece}, memory, nullptr);
    PlainMappedMemory plain(kGranules, piece, plain_memory);
    for (int step = 0; step < 100; ++step) {
      const Size begin = random() % kGranules,
                 end = begin + 1 + random() % std::min(kGranules - begin, Size{20});
      Range range{begin * kGranule, (end - begin) * kGranule};
      if (random() % 4 == 0) range = {range.begin + 512, range.size - 1024};
      memory.in_need = plain_memory.in_need = random() % 8 == 0;
      const auto what = random() % 8;
      if (what < 4) REQUIRE(arena.commit(range) == plain.commit(range));
      else if (what < 7) arena.decommit(range), plain.decommit(range, false);
      else arena.take_away(range), plain.decommit(range, true);
      if (random() % 8 == 0) arena.settle(), plain.settle();
      REQUIRE(arena.committed() == plain.committed);
      REQUIRE(memory.taken == plain_memory.taken);
      REQUIRE(memory.releases == plain_memory.releases);
      const MappedCalls &calls = arena.calls(), &expected = plain.calls;
      REQUIRE(calls.commits == expected.commits);
      REQUIRE(calls.decommits == expected.decommits);
      REQUIRE(calls.refusals == expected.refusals);
      REQUIRE(calls.creates == expected.creates);
      REQUIRE(calls.maps == expected.maps);
      REQUIRE(calls.unmaps == expected.unmaps);
      REQUIRE(calls.accesses == expected.accesses);
    }
  }
}

TEST_CASE("a range of any length costs what one granule costs") {
  for (const Size piece : {Size{0}, 64 * kMiB}) {
    SimMemory memory;
    MappedMemory arena(Size{1} << 60, {.granule = 4 * kKiB, .piece = piece}, memory, nullptr);
    constexpr Size kHuge = Size{1} << 50;
    for (int i = 0; i < 1000; ++i) {
      REQUIRE(arena.commit({kMiB, kHuge}));
      REQUIRE(memory.taken == kHuge);
      arena.take_away({kMiB, kHuge});
      REQUIRE(arena.commit({kHuge * 3, kHuge}));
      arena.decommit({0, kHuge * 4});
      arena.settle();
      REQUIRE(memory.taken == 0);
    }
  }
}

TEST_CASE("a piece goes back when all of its granules were decommitted") {
  SimMemory memory;
  StreamClock clock;
  MappedMemory arena(64 * kMiB, {.granule = 2 * kMiB, .piece = 8 * kMiB}, memory, &clock);
  REQUIRE(arena.ok());
  CHECK(arena.commit({0, 12 * kMiB}));
  CHECK(arena.calls().maps == 2);  // 8 and 4 MiB
  CHECK(memory.taken == 12 * kMiB);
  arena.decommit({6 * kMiB, 6 * kMiB});
  CHECK(arena.calls().unmaps == 1);
  CHECK(memory.taken == 8 * kMiB);
  CHECK(arena.commit({6 * kMiB, 2 * kMiB}));  // it was still mapped
  CHECK(arena.calls().maps == 2);
  arena.decommit({0, 8 * kMiB});
  CHECK(memory.taken == 0);
  CHECK(arena.committed() == 0);

  CHECK(arena.commit({10 * kMiB, 2 * kMiB}));
  CHECK(arena.commit({8 * kMiB, 16 * kMiB}));  // before it, and behind it to the next multiple and beyond
  CHECK(arena.calls().maps == 6);
  CHECK(memory.taken == 16 * kMiB);
}

TEST_CASE("what is taken away is mapped again before anything is made, and goes back before a refusal") {
  for (const Size piece : {Size{0}, 8 * kMiB}) {
    SimMemory memory{.limit = 16 * kMiB};
    MappedMemory arena(64 * kMiB, {.granule = 2 * kMiB, .piece = piece}, memory, nullptr);
    REQUIRE(arena.commit({0, 16 * kMiB}));
    const std::uint64_t creates = arena.calls().creates;
    arena.take_away({0, 8 * kMiB});
    CHECK(arena.committed() == 8 * kMiB);
    CHECK(memory.taken == 16 * kMiB);  // spares are held
    CHECK(arena.commit({32 * kMiB, 8 * kMiB}));
    CHECK(arena.calls().creates == creates);
    CHECK(memory.releases == 0);
    arena.take_away({32 * kMiB, 8 * kMiB});
    SimSegments segments(memory);
    CHECK(segments.take(4 * kMiB) != kNoOffset);  // spares make room
    CHECK(memory.taken <= 16 * kMiB);
    arena.settle();
    CHECK(memory.taken == 12 * kMiB);
    CHECK_FALSE(arena.commit({32 * kMiB, 8 * kMiB}));
    CHECK(memory.taken == 12 * kMiB);
  }
}

TEST_CASE("kept memory stays, and serves again") {
  SimMemory memory{.limit = 8 * kMiB};
  MappedMemory arena(64 * kMiB, {.keeps = true}, memory, nullptr);
  CHECK(arena.commit({0, 8 * kMiB}));
  arena.decommit({0, 8 * kMiB});
  CHECK(memory.taken == 8 * kMiB);
  CHECK(arena.commit({0, 8 * kMiB}));
  CHECK_FALSE(arena.commit({8 * kMiB, 2 * kMiB}));
  CHECK(arena.calls().refusals == 1);

  SimMemory other;
  SimSegments segments(other, {.shift = kGiB, .keeps = true});
  const Offset a = segments.take(4 * kMiB);
  CHECK(a >= kGiB);
  segments.give_back({a, 4 * kMiB});
  CHECK(segments.held() == 4 * kMiB);
  CHECK(segments.take(2 * kMiB) != a);
  CHECK(segments.take(4 * kMiB) == a);
  CHECK(segments.calls().takes == 2);
  CHECK(segments.calls().give_backs == 0);
}

TEST_CASE("the host waits before memory goes back, and then all streams are ordered") {
  SimMemory memory;
  StreamClock clock;
  MappedMemory arena(64 * kMiB, {}, memory, &clock);
  CHECK(arena.commit({0, 4 * kMiB}));
  const Tick moment = clock.now();
  CHECK_FALSE(clock.is_ordered(0, moment, 1));
  arena.decommit({0, kMiB});  // no whole granule
  CHECK_FALSE(clock.is_ordered(0, moment, 1));
  arena.decommit({0, 2 * kMiB});
  CHECK(clock.is_ordered(0, moment, 1));
  const StreamClock::Section section(clock);
  arena.decommit({2 * kMiB, 2 * kMiB});
  const Tick later = clock.now();
  CHECK(arena.commit({0, 2 * kMiB}));
  arena.decommit({0, 2 * kMiB});  // one wait a section
  CHECK_FALSE(clock.is_ordered(0, later, 1));
}

}  // namespace memoir
