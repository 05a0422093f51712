// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/finalizer_model.h"

#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/peers/binned_heap.h"
#include "memoir/heap/peers/split_heap.h"
#include "support/arena_segments.h"

namespace memoir {

TEST_CASE(
    "what is dead is freed after the delay, or at a collection: the young at any, the old at a full one") {
  SimArena arena(64 * kMiB);
  ArenaSegments segments(arena);
  FinalizerModel finalizers({.delay = 100, .young = 10});
  SplitHeap heap(segments, {}, &finalizers);
  finalizers.attach(heap);
  std::vector<Offset> offsets;
  for (int i = 0; i < 4; ++i) offsets.push_back(heap.allocate({kMiB}));

  finalizers.died(offsets[0], 0, 20);   // old
  finalizers.died(offsets[1], 15, 25);  // young
  finalizers.advance(119);
  CHECK(heap.live() == 4 * kMiB);
  CHECK(finalizers.waiting() == 2);
  finalizers.advance(120);
  CHECK(heap.live() == 3 * kMiB);
  CHECK(heap.size_of(offsets[0]) == 0);
  finalizers.collect(false);
  CHECK(heap.live() == 2 * kMiB);
  finalizers.died(offsets[2], 0, 130);
  finalizers.collect(false);
  CHECK(finalizers.waiting() == 1);
  finalizers.collect(true);
  CHECK(finalizers.waiting() == 0);
  CHECK(heap.live() == kMiB);
  CHECK(finalizers.young_collections() == 2);
  CHECK(finalizers.full_collections() == 1);
}

TEST_CASE("a pool that is full asks the finalizers, and goes on with what they free") {
  for (const bool old : {false, true}) {
    SimArena arena(64 * kMiB, {.limit = 8 * kMiB});
    ArenaSegments segments(arena);
    FinalizerModel finalizers({.delay = 1'000'000, .young = 10});
    BinnedHeap heap(segments, {}, &finalizers);
    finalizers.attach(heap);
    Tick now = 0;
    for (int i = 0; i < 100; ++i) {  // a loop that drops what it allocates
      const Tick born = now;
      const Offset offset = heap.allocate({kMiB});
      REQUIRE(offset != kNoOffset);
      now += old ? 20 : 2;
      finalizers.died(offset, born, now);
      finalizers.advance(now);
    }
    CHECK(segments.held() == 8 * kMiB);
    CHECK(finalizers.young_collections() == 12);  // one for every eight
    CHECK(finalizers.full_collections() == (old ? 12 : 0));
  }
}

}  // namespace memoir
