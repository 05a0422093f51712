// SPDX-License-Identifier: Apache-2.0
//
// Pools and streams: every reuse is ordered, on random walks of three streams.
#include <random>

#include "doctest/doctest.h"
#include "heap/checked_streams.h"
#include "heap/counting_device.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/peers/binned_heap.h"
#include "memoir/heap/peers/rmm_arena_heap.h"
#include "memoir/heap/peers/rmm_heap.h"
#include "memoir/heap/peers/split_heap.h"

namespace memoir {

namespace {

struct Object {
  Offset offset;
  Size size;
  StreamId stream;
};

/// Walks with objects of three streams; the number of times a stream got what another one had freed in order.
void walk(Heap& heap, CheckedStreams& streams, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Object> live;
  for (int step = 0; step < 3000; ++step) {
    streams.refuses = random() % 5 == 0;
    if (random() % 100 < (step / 300 % 2 == 0 ? 60 : 40)) {
      const Size size = random() % 3 == 0 ? 1 + random() % (3 * kMiB) : 1 + random() % 20'000;
      const auto stream = static_cast<StreamId>(random() % 3);
      const Offset offset = heap.allocate({size, 256, kNoSite, stream});
      if (offset == kNoOffset) continue;
      REQUIRE(streams.may_use({offset, size}, stream));
      live.push_back({offset, size, stream});
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Object object = live.back();
      live.pop_back();
      streams.used({object.offset, object.size}, object.stream);
      REQUIRE(heap.free(object.offset));
    }
  }
}

}  // namespace

TEST_CASE("what one stream freed goes to another one only behind a wait") {
  for (unsigned seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    {
      CountingDevice device(48 * kMiB);
      CheckedStreams streams;
      BinnedHeap heap(device, {}, nullptr, &streams);
      walk(heap, streams, seed);
      CHECK(streams.waits > 100);
      CHECK_FALSE(device.wrong);
    }
    {
      CountingDevice device(48 * kMiB);
      CheckedStreams streams;
      SplitHeap heap(device, {}, nullptr, &streams);
      walk(heap, streams, seed);
      CHECK(streams.waits > 100);
      CHECK_FALSE(device.wrong);
    }
    {
      CountingDevice device(48 * kMiB);
      CheckedStreams streams;
      RmmHeap heap(device, {}, &streams);
      walk(heap, streams, seed);
      CHECK(streams.waits > 100);
      CHECK_FALSE(device.wrong);
    }
    {
      SimArena arena(48 * kMiB);
      CheckedStreams streams;
      RmmArenaHeap heap(arena, 48 * kMiB, &streams);
      walk(heap, streams, seed);
      CHECK(streams.waits > 100);
    }
  }
}

TEST_CASE("the checker finds a reuse that nobody ordered") {
  CheckedStreams streams;
  streams.used({0, 100}, 1);
  CHECK(streams.may_use({0, 50}, 1));
  CHECK_FALSE(streams.may_use({40, 20}, 2));  // [50, 100) was stream 1's
  streams.used({0, 100}, 1);
  const Tick moment = streams.now();
  CHECK(streams.order(1, moment, 2));
  CHECK(streams.may_use({0, 10}, 2));
  CHECK_FALSE(streams.may_use({10, 10}, 3));
  const Tick after = streams.now();
  CHECK(streams.order(2, after, 3));  // 3 waits for 2, which has waited for 1
  CHECK(streams.may_use({20, 10}, 3));
}

}  // namespace memoir
