// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "heap/checked_streams.h"
#include "heap/rmm_arena_oracle.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/peers/rmm_arena_heap.h"

namespace memoir {

TEST_CASE("the same places as superblocks that are searched from end to end") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Size size = seed % 2 == 0 ? 24 * kMiB : 61 * kMiB + 768;
    SimArena arena(align_up(size, 2 * kMiB));
    RmmArenaHeap heap(arena, size);
    RmmArenaOracle oracle(size);
    std::vector<Offset> live;
    size_t refused = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random() % 100 < (step / 400 % 2 == 0 ? 62 : 38)) {
        const Size asked = random() % 5 == 0 ? 1 + random() % (3 * kMiB) : 1 + random() % 400'000;
        const auto stream = static_cast<StreamId>(random() % 3);
        const Offset offset = heap.allocate({asked, 256, kNoSite, stream});
        REQUIRE(offset == oracle.allocate(asked, stream));
        if (offset == kNoOffset) {
          ++refused;
        } else {
          live.push_back(offset);
          REQUIRE(heap.size_of(offset) == align_up(asked, 256));
        }
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        REQUIRE(heap.free(live.back()));
        oracle.free(live.back());
        live.pop_back();
      }
    }
    CHECK(refused > 0);
    CHECK(oracle.defragmented > refused);  // some requests were served by what came back
    for (const Offset offset : live) CHECK(heap.free(offset));
    CHECK(heap.live() == 0);
    CHECK(heap.allocate({align_down(size, 256)}) == 0);  // all superblocks joined
  }
}

TEST_CASE("without a size there is memory as far as objects ever reached") {
  SimArena arena(64 * kMiB);
  RmmArenaHeap heap(arena);
  CHECK(arena.committed() == 0);
  const Offset a = heap.allocate({3 * kMiB});
  CHECK(a == 0);
  CHECK(arena.committed() == 3 * kMiB);
  const Offset small = heap.allocate({1000});
  CHECK(small == 3 * kMiB);
  CHECK(heap.allocate({1000}) == small + 1024);
  CHECK(heap.allocate({5 * kMiB}) == 4 * kMiB);
  CHECK(arena.committed() == 9 * kMiB);
  CHECK(heap.free(a));
  heap.trim();
  CHECK(arena.committed() == 9 * kMiB);  // never given back
  CHECK(heap.allocate({2 * kMiB}) == 0);
}

TEST_CASE("a stream keeps its superblocks until somebody finds nothing; it waits for who used them") {
  SimArena arena(4 * kMiB);
  CheckedStreams streams;
  RmmArenaHeap heap(arena, 4 * kMiB, &streams);
  const Offset a = heap.allocate({kMiB, 256, kNoSite, 1});
  const Offset b = heap.allocate({kMiB, 256, kNoSite, 1});
  CHECK(heap.free(b));
  CHECK(heap.free(a));
  CHECK(heap.allocate({100, 256, kNoSite, 2}) == 2 * kMiB);  // not stream 1's
  CHECK(streams.waits == 0);
  streams.refuses = true;
  CHECK(heap.allocate({2 * kMiB, 256, kNoSite, 2}) == kNoOffset);
  streams.refuses = false;
  CHECK(heap.allocate({2 * kMiB, 256, kNoSite, 2}) == 0);
  CHECK(streams.waits == 1);
}

TEST_CASE("what was not there at the start is refused") {
  SimArena arena(4 * kMiB);
  CHECK_FALSE(RmmArenaHeap(arena, kMiB - 256).ok());
  CHECK_FALSE(RmmArenaHeap(arena, 6 * kMiB).ok());
  RmmArenaHeap heap(arena, 6 * kMiB);
  CHECK(heap.allocate({64}) == kNoOffset);
  CHECK_FALSE(heap.free(0));
}

}  // namespace memoir
