// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include "doctest/doctest.h"
#include "heap/counting_device.h"
#include "memoir/heap/peers/binned_heap.h"

namespace memoir {

namespace {

constexpr Tick kSecond = 1'000'000'000;

/// Frees what it was told to, when it is asked.
class ScriptedCollector final : public Collector {
 public:
  void collect(bool full) noexcept override {
    calls += full ? "F" : "y";
    auto& dead = full ? old : young;
    for (const Offset offset : dead) heap->free(offset);
    dead.clear();
  }
  Heap* heap = nullptr;
  std::vector<Offset> young, old;
  std::string calls;
};

std::uint64_t calls_of(const PhaseTable& table, std::string_view name) {
  for (const memoir::Phase& phase : table.phases()) {
    if (phase.name == name) return phase.calls;
  }
  return 999;
}

}  // namespace

TEST_CASE("blocks are powers of two, up to the largest; above, exact and given back at once") {
  CountingDevice device;
  BinnedHeap heap(device);
  for (const auto& [asked, block] : {std::pair<Size, Size>{1, 1},
                                     {2, 2},
                                     {3, 4},
                                     {1000, 1024},
                                     {1024, 1024},
                                     {1025, 2048},
                                     {100 * kMiB, 128 * kMiB},
                                     {128 * kMiB, 128 * kMiB}}) {
    const Offset offset = heap.allocate({asked});
    CHECK(heap.size_of(offset) == block);
    const Size held = heap.held();
    CHECK(heap.free(offset));
    CHECK(heap.held() == held);  // kept
  }
  const Size held = heap.held();
  const Offset exact = heap.allocate({128 * kMiB + 1});
  CHECK(heap.size_of(exact) == 128 * kMiB + 1);
  CHECK(heap.free(exact));
  CHECK(heap.held() == held);
  heap.trim();
  CHECK(heap.held() == 0);
  CHECK(device.held() == 0);
  CHECK_FALSE(device.wrong);
}

TEST_CASE("the block that was freed last is used first") {
  CountingDevice device;
  BinnedHeap heap(device);
  const Offset a = heap.allocate({1000}), b = heap.allocate({1000}), c = heap.allocate({1000});
  for (const Offset offset : {b, c, a}) CHECK(heap.free(offset));
  CHECK(heap.allocate({700}) == a);
  CHECK(heap.allocate({700}) == c);
  CHECK(heap.allocate({700}) == b);
  CHECK(device.takes == 3);
}

TEST_CASE("the ladder, rung by rung") {
  CountingDevice device(8 * kMiB);
  PhaseTable phases;
  ScriptedCollector collector;
  BinnedHeap heap(device, {}, &collector, nullptr, &phases);
  collector.heap = &heap;

  const Offset first = heap.allocate({4 * kMiB}), second = heap.allocate({4 * kMiB});
  CHECK(calls_of(phases, "1 alloc") == 2);
  CHECK(collector.calls == "");
  // 2: a young collection frees a block of this very bin.
  collector.young = {first};
  CHECK(heap.allocate({4 * kMiB}) == first);
  CHECK(collector.calls == "y");
  CHECK(calls_of(phases, "3 reclaim") == 0);
  // 3: it frees one of another bin, which is given back.
  collector.young = {first};
  const Offset small = heap.allocate({kMiB});
  CHECK(small != kNoOffset);
  CHECK(calls_of(phases, "3 reclaim") == 1);
  CHECK(device.held() == 5 * kMiB);
  // 5: only a full collection finds something dead.
  collector.old = {second};
  collector.calls = "";
  CHECK(heap.allocate({4 * kMiB}) == second);
  CHECK(collector.calls == "yF");
  CHECK(calls_of(phases, "6 reclaim") == 0);
  // 8 and 9: nothing helps.
  CHECK(heap.allocate({4 * kMiB}) == kNoOffset);
  CHECK(calls_of(phases, "9 alloc") == 1);
  CHECK(heap.live() == 5 * kMiB);
  CHECK(device.held() == 5 * kMiB);
}

TEST_CASE("reclaim gives back the largest blocks, as many as make up the size") {
  CountingDevice device;
  BinnedHeap heap(device, {.cap = 8 * kMiB});
  std::vector<Offset> offsets;
  for (const Size size : {kMiB, kMiB, 2 * kMiB, 4 * kMiB}) offsets.push_back(heap.allocate({size}));
  CHECK(heap.allocate({1}) == kNoOffset);  // the heap's own cap
  for (const Offset offset : offsets) CHECK(heap.free(offset));
  const size_t before = device.give_backs;
  const Offset offset = heap.allocate({500 * kKiB});
  CHECK(offset != kNoOffset);
  CHECK(device.give_backs == before + 1);  // the 4 MiB, though 1 MiB would have done
  CHECK(heap.held() == 4 * kMiB + 512 * kKiB);
}

TEST_CASE("ticks give back what five of them did not need, and come less often while nothing changes") {
  CountingDevice device;
  BinnedHeap heap(device);
  std::vector<Offset> offsets;
  for (int i = 0; i < 10; ++i) offsets.push_back(heap.allocate({kMiB}));
  for (int i = 0; i < 8; ++i) CHECK(heap.free(offsets[i]));

  Tick due = 100 * kSecond;
  const auto next_tick = [&] {  // seconds until the one after it
    const Tick now = due;
    due = heap.tick(now);
    CHECK(heap.tick(now + 1) == due);  // not due: nothing happens
    return (due - now) / kSecond;
  };
  CHECK(next_tick() == 1);  // usage fell from 1 to 0.2
  for (const Tick delay : {2, 4, 5, 5}) {
    CHECK(next_tick() == delay);
    CHECK(heap.held() == 10 * kMiB);  // the history began with ones
  }
  next_tick();
  CHECK(heap.held() == 2 * kMiB);  // floor(0.8 * 10) of them went

  // A burst between two ticks is remembered for five.
  for (int i = 0; i < 6; ++i) offsets[i] = heap.allocate({kMiB});
  for (int i = 0; i < 6; ++i) CHECK(heap.free(offsets[i]));
  for (int i = 0; i < 5; ++i) {
    next_tick();
    CHECK(heap.held() == 8 * kMiB);
  }
  next_tick();
  CHECK(heap.held() == 2 * kMiB);
}

TEST_CASE("options that cannot be are refused") {
  CountingDevice device;
  CHECK_FALSE(BinnedHeap(device, {.largest = kGiB}).ok());
  CHECK_FALSE(BinnedHeap(device, {.least_delay = 0}).ok());
  CHECK_FALSE(BinnedHeap(device, {.least_delay = 2, .most_delay = 1}).ok());
  BinnedHeap heap(device, {.largest = kGiB});
  CHECK(heap.allocate({64}) == kNoOffset);
  CHECK(heap.tick(0) == Heap::kNever);
}

}  // namespace memoir
