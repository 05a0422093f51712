// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/heap/planned/planned_heap.h"

namespace memoir {

namespace {

// The running example of planned_heap.h: four allocations of one pass, the last of which escapes.
RecordedPlan example() {
  return {.sequence = {{.site = 1, .size = 64, .alignment = 64, .lifetime = {0, 3}, .offset = 0},
                       {.site = 2, .size = 64, .alignment = 64, .lifetime = {1, 5}, .offset = 64},
                       {.site = 1, .size = 32, .alignment = 64, .lifetime = {4, 7}, .offset = 0},
                       {.site = 3, .size = 16, .alignment = 64, .lifetime = {6, 8}, .offset = kNoOffset}},
          .arena_size = 128,
          .load = 128};
}

}  // namespace

TEST_CASE("a pass that repeats its recording is served as planned, pass after pass") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  REQUIRE(layout.ok());
  PlannedHeap heap(layout);
  for (int pass = 0; pass < 3; ++pass) {
    heap.begin_pass();
    CHECK(heap.allocate({64, 64, 1}) == 0);
    CHECK(heap.allocate({64, 64, 2}) == 64);
    CHECK(heap.live() == 128);
    CHECK(heap.free(0));
    CHECK(heap.allocate({32, 64, 1}) == 0);
    CHECK(heap.size_of(0) == 32);
    CHECK(heap.free(64));
    CHECK(heap.allocate({16, 64, 3}) == kNoOffset);
    CHECK(heap.free(0));
    CHECK(heap.in_step());
    CHECK(heap.at_end());
    CHECK(heap.counters().planned == 3);
    CHECK(heap.counters().escaping == 1);
    CHECK(heap.live_objects() == 0);
  }
}

TEST_CASE("an extra operator costs its own allocation only") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  CHECK(heap.allocate({64, 64, 1}) == 0);
  CHECK(heap.allocate({8, 64, 9}) == kNoOffset);
  CHECK_FALSE(heap.in_step());
  CHECK(heap.allocate({64, 64, 2}) == 64);
  CHECK(heap.free(0));
  CHECK(heap.allocate({32, 64, 1}) == 0);
  CHECK(heap.counters().unmatched == 1);
}

TEST_CASE("a skipped operator and two reordered ones find their own ranges") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  CHECK(heap.allocate({64, 64, 2}) == 64);  // the first was skipped ...
  CHECK(heap.allocate({64, 64, 1}) == 0);   // ... or only late
  CHECK(heap.free(0));
  CHECK(heap.allocate({32, 64, 1}) == 0);
  CHECK(heap.counters().planned == 3);
}

TEST_CASE("a range that is still taken is not handed out, however it is asked for") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  CHECK(heap.allocate({64, 64, 1}) == 0);
  CHECK(heap.allocate({64, 64, 2}) == 64);
  CHECK(heap.allocate({32, 64, 1}) == kNoOffset);  // the first lives longer than it was recorded to
  CHECK(heap.counters().occupied == 1);
  heap.begin_pass();
  CHECK(heap.allocate({64, 64, 1}) == kNoOffset);  // kept over the end of the pass
  CHECK(heap.free(64));
  CHECK(heap.allocate({64, 64, 2}) == 64);
}

TEST_CASE("without sites the heap follows in step, and then not at all") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  CHECK(heap.allocate({64, 64}) == 0);
  CHECK(heap.allocate({65, 64}) == kNoOffset);
  CHECK_FALSE(heap.in_step());
  CHECK(heap.allocate({64, 64}) == kNoOffset);
  CHECK(heap.allocate({64, 64, 2}) == 64);  // sites came to be known
}

TEST_CASE("wild and double frees are refused, and a bad request goes elsewhere") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  CHECK(heap.allocate({0, 64, 1}) == kNoOffset);
  CHECK(heap.allocate({64, 48, 1}) == kNoOffset);
  CHECK(heap.allocate({64, 128, 1}) == kNoOffset);  // planned at an alignment of 64 only
  heap.begin_pass();
  CHECK(heap.allocate({64, 64, 1}) == 0);
  CHECK_FALSE(heap.free(64));
  CHECK_FALSE(heap.free(1));
  CHECK_FALSE(heap.free(kNoOffset));
  CHECK(heap.free(0));
  CHECK_FALSE(heap.free(0));
  CHECK(heap.live() == 0);
}

TEST_CASE("a plan that cannot be followed is not") {
  RecordedPlan outside = example();
  outside.arena_size = 127;
  CHECK_FALSE(PlannedLayout(outside).ok());
  RecordedPlan misaligned = example();
  misaligned.sequence[0].alignment = 3;
  CHECK_FALSE(PlannedLayout(misaligned).ok());
  const PlannedLayout empty(RecordedPlan{});
  REQUIRE(empty.ok());
  PlannedHeap heap(empty);
  CHECK(heap.allocate({64, 64, 1}) == kNoOffset);
  CHECK_FALSE(heap.free(0));
}

TEST_CASE("a guest gets the free room that the plan needs last, and gives it back") {
  // All five of 64 bytes; the first two live, then one comes to [64, 128), and only later one to [192, 256).
  const RecordedPlan plan{.sequence = {{.site = 1, .size = 64, .alignment = 64, .offset = 0},
                                       {.site = 2, .size = 64, .alignment = 64, .offset = 128},
                                       {.site = 3, .size = 64, .alignment = 64, .offset = 64},
                                       {.site = 4, .size = 64, .alignment = 64, .offset = 192},
                                       {.site = 5, .size = 64, .alignment = 64, .offset = kNoOffset}},
                          .arena_size = 256};
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  heap.take_guests(256, 64);
  CHECK(heap.allocate({64, 64, 1}) == 0);
  CHECK(heap.allocate({64, 64, 2}) == 128);
  CHECK(heap.allocate({60, 64, 9}) == kNoOffset);        // too small to be worth it
  CHECK(heap.allocate({64, 64, 5}) == kNoOffset);        // as planned: it escapes
  CHECK(heap.allocate({80, 64, 5}) == kNoOffset);        // of its site
  CHECK(heap.allocate({80, 64, 9}) == kNoOffset);        // larger than what is free in one piece
  CHECK(heap.allocate({64, 64, kNoSite}) == kNoOffset);  // nobody knows whether it escapes
  heap.begin_pass(2);
  CHECK(heap.allocate({64, 64, 9}) == 192);
  CHECK(heap.size_of(192) == 64);
  CHECK(heap.live() == 192);
  CHECK(heap.counters().guests == 1);
  CHECK(heap.guests().size() == 1);
  CHECK(heap.allocate({64, 64, 3}) == 64);
  CHECK(heap.allocate({64, 64, 4}) == kNoOffset);  // the guest is still there
  CHECK(heap.counters().occupied == 1);
  CHECK(heap.free(192));
  CHECK_FALSE(heap.free(192));
  CHECK(heap.guests().empty());
  heap.begin_pass(3);
  CHECK(heap.allocate({64, 64, 4}) == 192);
}

TEST_CASE("what the plan has no room for just now is a guest elsewhere, above its arena too") {
  const RecordedPlan plan = example();
  const PlannedLayout layout(plan);
  PlannedHeap heap(layout);
  heap.take_guests(1024, 16);
  CHECK(heap.allocate({64, 64, 1}) == 0);
  CHECK(heap.allocate({64, 64, 2}) == 64);
  CHECK(heap.allocate({32, 64, 1}) == 128);  // its range is taken
  CHECK(heap.counters().guests == 1);
  std::vector<Range> ranges;
  heap.for_each_live_range([&](const Range& range) { ranges.push_back(range); });
  CHECK(ranges == std::vector<Range>{{0, 64}, {64, 64}, {128, 32}});
  for (size_t i = 1; i < PlannedHeap::kMostGuests; ++i) heap.allocate({16, 16, 9});
  CHECK(heap.guests().size() == 1 + (1024 - 160) / 16);
}

// Whatever is asked, in whatever order, whatever is freed when: two live objects never share a byte. With
// guests in every second walk, half of them with room above the arena.
TEST_CASE("random walks next to a slow oracle") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    RecordedPlan plan;
    plan.arena_size = 64 * 64;
    const size_t count = 1 + random() % 200;
    for (size_t i = 0; i < count; ++i) {  // ranges overlap at will: the heap must not trust the plan
      const Size size = 1 + random() % 1024;
      const Offset offset = align_down(random() % (plan.arena_size - size + 1), 64);
      plan.sequence.push_back({.site = 1 + random() % 5,
                               .size = size,
                               .alignment = 64,
                               .offset = random() % 8 == 0 ? kNoOffset : offset});
    }
    const PlannedLayout layout(plan);
    REQUIRE(layout.ok());
    PlannedHeap heap(layout);
    const Size room = plan.arena_size + (seed % 4 == 1 ? 2000 : 0);
    if (seed % 2 == 1) heap.take_guests(room, 1 + random() % 512);
    std::map<Offset, Size> live;  // the oracle
    Size live_bytes = 0;
    size_t at = 0;
    for (int step = 0; step < 2000; ++step) {
      const auto dice = random() % 100;
      if (dice < 2) {
        heap.begin_pass();
        at = 0;
      } else if (dice < 55) {
        Request request{1 + random() % 1024, 64, random() % 6};
        if (dice < 50 && at < count) {
          if (dice < 5) at = random() % count;  // skip or repeat a stretch
          request = {plan.sequence[at].size, 64, dice < 30 ? plan.sequence[at].site : kNoSite};
          ++at;
        }
        const Offset offset = heap.allocate(request);
        if (offset == kNoOffset) continue;
        REQUIRE(offset % request.alignment == 0);
        REQUIRE(offset + request.size <= room);
        for (const auto& [other, size] : live)
          REQUIRE_FALSE(Range{offset, request.size}.overlaps({other, size}));
        REQUIRE(heap.size_of(offset) == request.size);
        live[offset] = request.size;
        live_bytes += request.size;
      } else if (!live.empty()) {
        auto victim = live.begin();
        std::advance(victim, random() % live.size());
        REQUIRE(heap.free(victim->first));
        REQUIRE_FALSE(heap.free(victim->first));
        live_bytes -= victim->second;
        live.erase(victim);
      }
      REQUIRE(heap.live() == live_bytes);
      REQUIRE(heap.live_objects() == live.size());
    }
  }
}

}  // namespace memoir
