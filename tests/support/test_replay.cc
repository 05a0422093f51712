// SPDX-License-Identifier: Apache-2.0
#include "support/replay.h"

#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/plain/span_heap.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/write/trace_writer.h"

namespace memoir {

TEST_CASE("a replay counts what was asked, what was served, and what it took") {
  TraceWriter writer;
  writer.pass_begin(0, 0);
  writer.allocate(1, 1, 8 * kKiB, 64, 0);
  writer.allocate(2, 1, 0, 64, 0);           // nothing to place
  writer.allocate(3, 1, 100 * kKiB, 64, 0);  // larger than the arena
  writer.allocate(4, 2, 4 * kKiB, 64, 1);
  writer.free(1, 1);
  writer.free(3, 0);
  writer.allocate(5, 2, 4 * kKiB, 64, 0);  // stays live
  writer.pass_end(0, 0);
  const Trace trace = Trace::from_bytes(writer.bytes());
  SimArena arena(64 * kKiB);
  SpanHeap heap(arena);
  const ReplayUsage usage = replay(trace.events(), heap, arena);
  CHECK(usage == ReplayUsage{.allocations = 5,
                             .frees = 2,
                             .served = 3,
                             .elsewhere = 1,
                             .elsewhere_bytes = 100 * kKiB,
                             .peak_load = 112 * kKiB,
                             .peak_live = 12 * kKiB,
                             .peak_committed = 12 * kKiB,
                             .peak_end = 12 * kKiB});
  CHECK(heap.live() == 0);
  CHECK(replay(trace.events(), heap, arena) == usage);
}

TEST_CASE("no heap needs less than the load, and the plain one little more, on a long random trace") {
  TraceWriter writer;
  std::mt19937_64 random(3);
  std::vector<ObjectId> live;
  for (ObjectId object = 0; object < 20'000; ++object) {
    writer.allocate(object, 1 + random() % 50, Size{64} << random() % 12, 64, 0);
    live.push_back(object);
    while (live.size() > 200 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      writer.free(live.back(), 0);
      live.pop_back();
    }
  }
  const Trace trace = Trace::from_bytes(writer.bytes());
  SimArena arena(kGiB);
  SpanHeap heap(arena);
  const ReplayUsage usage = replay(trace.events(), heap, arena);
  CHECK(usage.elsewhere == 0);
  CHECK(usage.peak_live == usage.peak_load);
  CHECK(usage.peak_end >= usage.peak_load);
  CHECK(usage.peak_end < 2 * usage.peak_load);
  CHECK(usage.peak_committed >= usage.peak_load);
}

}  // namespace memoir
