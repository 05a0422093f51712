// SPDX-License-Identifier: Apache-2.0
//
// Simulated mapped memory and segments do what the device's do: arena/cuda_arena.h and
// device/cuda_segments.h.
#include "memoir/simulate/memory/mapped_memory.h"

#include "doctest/doctest.h"
#include "memoir/simulate/memory/sim_segments.h"

namespace memoir {

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
