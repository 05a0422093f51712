// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/plain/span_heap.h"

namespace memoir {

TEST_CASE("the smallest span that holds a request, the lowest of several") {
  SimArena arena(kMiB);
  SpanHeap heap(arena);
  REQUIRE(heap.ok());
  //   offset   0     300   400   600   700   1000  1100  1300  1400
  //            | 300 | 100 | 200 | 100 | 300 | 100 | 200 | 100 | free
  Offset at = 0;
  for (const Size size : {300, 100, 200, 100, 300, 100, 200, 100}) {
    CHECK(heap.allocate({size, 1}) == at);
    at += size;
  }
  for (const Offset offset : {0, 400, 700, 1100}) CHECK(heap.free(offset));
  CHECK(heap.allocate({200, 1}) == 400);
  CHECK(heap.allocate({150, 1}) == 1100);
  CHECK(heap.allocate({250, 1}) == 0);
  CHECK(heap.allocate({50, 1}) == 250);  // what was left of 0 and of 1100: equal sizes, the lower one
  CHECK(heap.allocate({50, 1}) == 1250);
  CHECK(heap.allocate({400, 1}) == 1400);
  CHECK(heap.largest_free() == kMiB - 1800);
}

TEST_CASE("an aligned request leaves the bytes before it free") {
  SimArena arena(kMiB);
  SpanHeap heap(arena);
  CHECK(heap.allocate({1, 1}) == 0);
  CHECK(heap.allocate({10, 4096}) == 4096);
  CHECK(heap.allocate({4095, 1}) == 1);
  CHECK(heap.allocate({64, 512 * kKiB}) == 512 * kKiB);
  CHECK(heap.allocate({64, kMiB}) == kNoOffset);
}

TEST_CASE("a nearly full heap finds the one aligned place, however many spans are misaligned") {
  SimArena arena(kMiB);
  SpanHeap heap(arena);
  std::vector<Offset> small;
  for (Offset offset; (offset = heap.allocate({32, 1})) != kNoOffset;) small.push_back(offset);
  REQUIRE(small.size() == kMiB / 32);
  for (const Offset offset : small) {
    if (offset % 64 == 32) heap.free(offset);  // no free span of 32 bytes begins at a multiple of 64 ...
  }
  CHECK(heap.allocate({32, 64}) == kNoOffset);
  CHECK(heap.free(640 * kKiB + 64));  // ... but this one of 96 bytes holds one
  CHECK(heap.allocate({32, 64}) == 640 * kKiB + 64);
}

TEST_CASE("memory is committed as needed, once, and the rest of a machine's when it is full") {
  SimArena arena(kMiB, {.limit = 128 * kKiB});
  SpanHeap heap(arena);
  CHECK(heap.allocate({100, 64}) == 0);
  CHECK(arena.committed() == 4 * kKiB);
  CHECK(heap.allocate({124 * kKiB, 4096}) == 4096);
  CHECK(arena.committed() == 128 * kKiB);
  CHECK(heap.allocate({8 * kKiB, 4096}) == kNoOffset);  // there are addresses but no memory
  CHECK(heap.live() == 100 + 124 * kKiB);
  CHECK(heap.free(4096));
  CHECK(arena.committed() == 128 * kKiB);                       // kept for the next object
  CHECK(heap.allocate({64 * kKiB, 512 * kKiB}) == 512 * kKiB);  // trims itself to make room
  CHECK(arena.committed() == 68 * kKiB);
  CHECK(arena.peak_committed() == 128 * kKiB);
}

TEST_CASE("a heap over no arena serves nothing") {
  SimArena arena(0);
  SpanHeap heap(arena);
  CHECK_FALSE(heap.ok());
  CHECK(heap.allocate({1, 1}) == kNoOffset);
  CHECK_FALSE(heap.free(0));
  CHECK(heap.size_of(0) == 0);
  CHECK(heap.largest_free() == 0);
  heap.trim();
}

TEST_CASE("a hundred thousand live objects are served; what a pair costs is said") {
  double nanoseconds[2];
  const size_t counts[] = {100, 100'000};
  for (int i = 0; i < 2; ++i) {
    SimArena arena(8 * kGiB, {.granule = 2 * kMiB});
    SpanHeap heap(arena);
    std::mt19937_64 random(1);
    std::vector<Offset> live;
    for (size_t n = 0; n < counts[i]; ++n) live.push_back(heap.allocate({64 + random() % 50'000, 64}));
    const auto start = std::chrono::steady_clock::now();
    constexpr int kPairs = 100'000;
    bool all_served = true;
    for (int n = 0; n < kPairs; ++n) {
      Offset& victim = live[random() % live.size()];
      all_served &= heap.free(victim);
      victim = heap.allocate({64 + random() % 50'000, 64});
      all_served &= victim != kNoOffset;
    }
    CHECK(all_served);
    nanoseconds[i] =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kPairs;
  }
  MESSAGE("free + allocate: " << nanoseconds[0] << " ns with 100 live objects, " << nanoseconds[1]
                              << " ns with 100,000");
}

}  // namespace memoir
