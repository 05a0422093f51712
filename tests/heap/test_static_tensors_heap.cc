// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "heap/linear_list.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/plain/static_tensors_heap.h"

namespace memoir {

using Refusal = StaticTensorsHeap::Refusal;

TEST_CASE("the same blocks as a scan over a list finds, to the last request that is refused") {
  for (const Size alignment : {Size{64}, Size{256}}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      std::mt19937_64 random(seed);
      SimArena arena(4 * kMiB);
      StaticTensorsHeap heap(arena, {.buffers = 2000, .alignment = alignment});
      LinearList oracle(4 * kMiB, alignment);
      std::vector<Offset> live;
      size_t refused = 0;
      for (int step = 0; step < 20'000; ++step) {
        const bool growing = step / 700 % 2 == 0;
        if (live.size() < 1900 && random() % 100 < (growing ? 65 : 40)) {
          const Size size = random() % 4 == 0 ? 1 + random() % 100'000 : 64 * (1 + random() % 12);
          const Offset offset = heap.allocate({size, alignment});
          REQUIRE(offset == oracle.allocate(size));
          if (offset != kNoOffset) live.push_back(offset);
          refused += offset == kNoOffset;
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          REQUIRE(heap.free(live.back()));
          oracle.free(live.back());
          live.pop_back();
        }
      }
      CHECK(refused > 0);
    }
  }
}

TEST_CASE("of equal blocks the highest address is taken, at its low end") {
  SimArena arena(64 * kKiB);
  StaticTensorsHeap heap(arena);
  std::vector<Offset> offsets;
  for (int i = 0; i < 8; ++i) offsets.push_back(heap.allocate({1000}));
  CHECK(heap.size_of(offsets[0]) == 1024);
  for (const int i : {1, 5, 3}) CHECK(heap.free(offsets[i]));
  CHECK(heap.allocate({500}) == offsets[5]);
  CHECK(heap.allocate({1024}) == offsets[3]);
  CHECK(heap.allocate({1024}) == offsets[1]);
  CHECK(heap.allocate({512}) == offsets[5] + 512);
}

TEST_CASE("a block that is freed above every free block is not lost, and a full pool refuses") {
  SimArena arena(4096);
  StaticTensorsHeap heap(arena);
  std::vector<Offset> offsets;
  for (int i = 0; i < 4; ++i) offsets.push_back(heap.allocate({1024}));
  CHECK(heap.largest_free() == 0);
  CHECK(heap.allocate({1}) == kNoOffset);  // no free block at all
  CHECK(heap.refusal() == Refusal::kFull);
  CHECK(heap.free(offsets[0]));
  CHECK(heap.free(offsets[3]));  // above the only free block
  CHECK(heap.free(offsets[2]));
  CHECK(heap.largest_free() == 2048);
  CHECK(heap.free(offsets[1]));
  CHECK(heap.largest_free() == 4096);
  CHECK(heap.allocate({4096}) == 0);
}

TEST_CASE("everything is secured at the start, or the refusal says what was not there") {
  SimArena small(64 * kMiB, {.limit = 16 * kMiB});
  StaticTensorsHeap refused(small);
  CHECK_FALSE(refused.ok());
  CHECK(refused.refusal() == Refusal::kNotSecured);
  CHECK(refused.allocate({64}) == kNoOffset);
  CHECK(small.committed() == 0);

  StaticTensorsHeap heap(small, {.pool = 16 * kMiB, .buffers = 3});
  REQUIRE(heap.ok());
  CHECK(small.committed() == 16 * kMiB);
  const Offset low = heap.allocate({6 * kMiB}), middle = heap.allocate({4 * kMiB});
  CHECK(heap.allocate({6 * kMiB}) != kNoOffset);
  CHECK(heap.free(middle));
  CHECK(heap.allocate({5 * kMiB}) == kNoOffset);
  CHECK(heap.refusal() == Refusal::kFull);
  CHECK(heap.allocate({kMiB}) == middle);
  CHECK(heap.allocate({kMiB}) == kNoOffset);
  CHECK(heap.refusal() == Refusal::kBuffers);
  CHECK(heap.free(low));
  CHECK(heap.allocate({8 * kMiB}) == kNoOffset);  // 9 MiB are free: 6 and 3
  CHECK(heap.refusal() == Refusal::kFragmented);
  CHECK(heap.allocate({64, 128}) == kNoOffset);
  CHECK(heap.refusal() == Refusal::kRequest);
  heap.trim();
  CHECK(small.committed() == 16 * kMiB);
}

TEST_CASE("options that cannot be are refused") {
  SimArena arena(kMiB);
  for (const StaticTensorsOptions& options :
       {StaticTensorsOptions{.alignment = 48}, StaticTensorsOptions{.alignment = 0},
        StaticTensorsOptions{.pool = 2 * kMiB}, StaticTensorsOptions{.pool = 32},
        StaticTensorsOptions{.buffers = 0}, StaticTensorsOptions{.buffers = ~Size{0}}}) {
    StaticTensorsHeap heap(arena, options);
    CHECK_FALSE(heap.ok());
    CHECK(heap.refusal() == Refusal::kOptions);
    CHECK(std::string(StaticTensorsHeap::describe(heap.refusal())).size() > 20);
  }
}

}  // namespace memoir
