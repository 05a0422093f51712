// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "heap/checked_streams.h"
#include "heap/counting_device.h"
#include "heap/rmm_oracle.h"
#include "memoir/heap/peers/rmm_heap.h"

namespace memoir {

TEST_CASE("the same blocks and device calls as lists that are searched from end to end") {
  for (unsigned seed = 0; seed < 9; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Size cap = seed % 3 == 0 ? ~Size{0} : 24 * kMiB;
    const Size maximum = seed % 3 == 2 ? 20 * kMiB : 0;
    CountingDevice device(cap, 256), oracle_device(cap, 256);
    RmmHeap heap(device, {.maximum = maximum});
    RmmOracle oracle(oracle_device, maximum);
    std::vector<Offset> live;
    size_t refused = 0;
    for (int step = 0; step < 5000; ++step) {
      if (random() % 100 < (step / 500 % 2 == 0 ? 60 : 40)) {
        const Size size = random() % 5 == 0 ? 1 + random() % (2 * kMiB) : 1 + random() % 60'000;
        const auto stream = static_cast<StreamId>(random() % 4 == 0 ? random() % 3 : 0);
        const Offset offset = heap.allocate({size, 256, kNoSite, stream});
        REQUIRE(offset == oracle.allocate(size, stream));
        if (offset != kNoOffset) live.push_back(offset);
        refused += offset == kNoOffset;
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        REQUIRE(heap.free(live.back()));
        oracle.free(live.back());
        live.pop_back();
      }
      REQUIRE(device.takes == oracle_device.takes);
      REQUIRE(heap.held() == device.held());
    }
    if (cap != ~Size{0}) CHECK(refused > 0);
    if (maximum != 0) CHECK(device.most_held <= maximum);
  }
}

TEST_CASE("the pool doubles, and asks for half when the device refuses") {
  CountingDevice device(100 * kMiB);
  RmmHeap heap(device, {.initial = 16 * kMiB});
  CHECK(heap.held() == 16 * kMiB);
  const Offset first = heap.allocate({16 * kMiB});
  CHECK(heap.allocate({1}) != kNoOffset);
  CHECK(heap.held() == 32 * kMiB);
  CHECK(heap.allocate({20 * kMiB}) != kNoOffset);
  CHECK(heap.held() == 64 * kMiB);
  const size_t takes = device.takes;
  CHECK(heap.allocate({30 * kMiB}) != kNoOffset);  // 64 MiB are refused, 32 are not
  CHECK(device.takes == takes + 2);
  CHECK(heap.held() == 96 * kMiB);
  CHECK(heap.free(first));
  heap.trim();
  CHECK(device.held() == 96 * kMiB);  // never given back
  CHECK(heap.allocate({16 * kMiB}) == first);
}

TEST_CASE("another stream's blocks are taken behind a wait, all of them; without one the pool grows") {
  CountingDevice device;
  CheckedStreams streams;
  RmmHeap heap(device, {.initial = kMiB}, &streams);
  const Offset a = heap.allocate({256 * kKiB, 256, kNoSite, 0});
  const Offset b = heap.allocate({512 * kKiB, 256, kNoSite, 0});
  CHECK(heap.free(b));
  CHECK(heap.free(a));
  streams.refuses = true;
  CHECK(heap.allocate({kMiB, 256, kNoSite, 1}) != a);
  CHECK(heap.held() == 2 * kMiB);
  streams.refuses = false;
  CHECK(heap.allocate({256 * kKiB, 256, kNoSite, 1}) == a);
  CHECK(streams.waits == 1);
  CHECK(heap.allocate({512 * kKiB, 256, kNoSite, 1}) == b);  // the rest is stream 1's by now
  CHECK(streams.waits == 1);
}

TEST_CASE("what was not there at the start is refused") {
  CountingDevice device(kMiB);
  CHECK_FALSE(RmmHeap(device, {.initial = 2 * kMiB}).ok());
  CHECK_FALSE(RmmHeap(device, {.initial = 2, .maximum = 1}).ok());
  RmmHeap heap(device, {.initial = 2 * kMiB});
  CHECK(heap.allocate({64}) == kNoOffset);
}

}  // namespace memoir
