// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "doctest/doctest.h"
#include "heap/counting_device.h"
#include "heap/split_oracle.h"
#include "memoir/heap/peers/split_heap.h"

namespace memoir {

namespace {

/// A collector whose dead are those that the walk let go: young ones at gc(false), all at gc(true).
template <class Pool>
class Finalizers final : public Collector {
 public:
  void collect(bool full) noexcept override {
    ++(full ? full_calls : young_calls);
    std::vector<std::pair<Offset, bool>> kept;
    for (const auto& [offset, old] : dead) {
      if (old && !full) {
        kept.push_back({offset, old});
      } else {
        pool->free(offset);
      }
    }
    dead = kept;
  }
  Pool* pool = nullptr;
  std::vector<std::pair<Offset, bool>> dead;
  int young_calls = 0, full_calls = 0;
};

std::uint64_t calls_of(const PhaseTable& table, std::string_view name) {
  for (const memoir::Phase& phase : table.phases()) {
    if (phase.name == name) return phase.calls;
  }
  return 999;
}

}  // namespace

TEST_CASE("the same blocks, device calls and collections as the pull request's pool written down plainly") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Size cap = seed % 2 == 0 ? ~Size{0} : 200 * kMiB;
    CountingDevice device(cap), oracle_device(cap);
    Finalizers<SplitHeap> finalizers;
    Finalizers<SplitOracle> oracle_finalizers;
    SplitHeap heap(device, {}, &finalizers);
    SplitOracle oracle(oracle_device);
    finalizers.pool = &heap;
    oracle_finalizers.pool = &oracle;
    oracle.collector = &oracle_finalizers;
    std::vector<Offset> live;
    for (int step = 0; step < 4000; ++step) {
      if (random() % 100 < (step / 400 % 2 == 0 ? 60 : 35)) {
        const auto dice = random() % 20;
        const Size size = dice == 0  ? 32 * kMiB + random() % (30 * kMiB)
                          : dice < 5 ? kMiB - 1000 + random() % (8 * kMiB)
                                     : 1 + random() % (400 * kKiB);
        const Offset offset = heap.allocate({size, 512});
        REQUIRE(offset == oracle.allocate(size));
        if (offset != kNoOffset) live.push_back(offset);
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        const Offset offset = live.back();
        live.pop_back();
        if (random() % 3 == 0) {  // dead, but not freed
          const bool old = random() % 2 == 0;
          finalizers.dead.push_back({offset, old});
          oracle_finalizers.dead.push_back({offset, old});
        } else {
          REQUIRE(heap.free(offset));
          oracle.free(offset);
        }
      }
      REQUIRE(device.takes == oracle_device.takes);
      REQUIRE(device.held() == oracle_device.held());
      REQUIRE(heap.held() == device.held());
      REQUIRE(finalizers.full_calls == oracle_finalizers.full_calls);
    }
    if (cap != ~Size{0}) CHECK(finalizers.full_calls > 0);
    CHECK_FALSE(device.wrong);
    CHECK_FALSE(oracle_device.wrong);
  }
}

TEST_CASE("sizes are rounded by class, and classed again") {
  CountingDevice device;
  SplitHeap heap(device);
  for (const auto& [asked, block] : {std::pair<Size, Size>{1, 512},
                                     {513, 1024},
                                     {kMiB, kMiB},
                                     {kMiB + 1, kMiB + 128 * kKiB},
                                     {32 * kMiB, 32 * kMiB},
                                     {32 * kMiB + 1, 33 * kMiB}}) {
    CHECK(heap.size_of(heap.allocate({asked})) == block);
  }
  CHECK(heap.allocate({64, 1024}) == kNoOffset);
}

TEST_CASE("a free is only queued: the next allocation repopulates and compacts") {
  CountingDevice device;
  PhaseTable phases;
  SplitHeap heap(device, {}, nullptr, nullptr, &phases);
  const Offset whole = heap.allocate({kMiB});
  CHECK(heap.free(whole));
  std::vector<Offset> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(heap.allocate({128 * kKiB}));
  CHECK(parts[0] == whole);
  CHECK(parts[7] == whole + 7 * 128 * kKiB);
  CHECK(device.takes == 1);
  const auto compactions = calls_of(phases, "1.1b compact");
  for (const int i : {3, 1, 0, 2, 5, 7, 6, 4}) CHECK(heap.free(parts[i]));
  CHECK(calls_of(phases, "1.1b compact") == compactions);
  CHECK(calls_of(phases, "free") == 9);
  CHECK(heap.live() == 0);
  CHECK(heap.allocate({kMiB}) == whole);  // one block again
  CHECK(calls_of(phases, "1.1b compact") == compactions + 1);
  CHECK(calls_of(phases, "1.3 alloc") == 1);
}

TEST_CASE("a huge block serves a smaller huge request within huge_overhead only") {
  CountingDevice device;
  SplitHeap heap(device, {.huge_overhead = 4 * kMiB});
  const Offset huge = heap.allocate({100 * kMiB});
  CHECK(heap.free(huge));
  CHECK(heap.allocate({95 * kMiB}) != huge);
  CHECK(heap.allocate({96 * kMiB}) == huge);
}

TEST_CASE("reclaiming: huge, then large, then small, whole segments only, until it is enough") {
  CountingDevice device(120 * kMiB);
  SplitHeap heap(device);
  const Offset small = heap.allocate({kMiB}), large = heap.allocate({20 * kMiB}),
               cut = heap.allocate({30 * kMiB}), huge = heap.allocate({40 * kMiB});
  for (const Offset offset : {small, large, cut, huge}) CHECK(heap.free(offset));
  const Offset part = heap.allocate({24 * kMiB});  // the low end of the 30 MiB, which is then not whole
  CHECK(part == cut);
  CHECK(heap.allocate({50 * kMiB}) != kNoOffset);  // the 40 MiB were enough
  CHECK(device.held() == (1 + 20 + 30 + 50) * kMiB);
  CHECK(heap.allocate({32 * kMiB}) != kNoOffset);  // no huge one: the 20 MiB go
  CHECK(device.held() == (1 + 30 + 50 + 32) * kMiB);
  CHECK(heap.allocate({8 * kMiB}) != kNoOffset);  // the 1 MiB goes
  CHECK(device.held() == (30 + 50 + 32 + 8) * kMiB);
  CHECK(heap.allocate({7 * kMiB}) == kNoOffset);
  CHECK(heap.allocate({6 * kMiB}) == part + 24 * kMiB);  // what was cut off
}

TEST_CASE("options that cannot be are refused") {
  CountingDevice device;
  CHECK_FALSE(SplitHeap(device, {.small = 0}).ok());
  CHECK_FALSE(SplitHeap(device, {.small = 1000}).ok());
  CHECK_FALSE(SplitHeap(device, {.small = 4 * kMiB, .large = 2 * kMiB}).ok());
  CHECK(SplitHeap(device, {.small = 0}).allocate({64}) == kNoOffset);
}

}  // namespace memoir
