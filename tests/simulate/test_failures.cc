// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/policy/policies.h"
#include "memoir/simulate/simulation.h"
#include "simulate/events.h"

namespace memoir {

namespace {

Event segment(Offset address, Size size, EventKind kind = EventKind::kSegmentAllocate) {
  Event event;
  event.kind = kind;
  event.object = address;
  event.size = size;
  return event;
}

Event failure(Size asked, Size device_free, StreamId stream = 0) {
  Event event;
  event.kind = EventKind::kOutOfMemory;
  event.object = device_free;
  event.size = asked;
  event.stream = stream;
  return event;
}

/// 30 MiB live in 40 MiB of segments, then 24 MiB more are asked for with 10 MiB free on the device.
run::Events failed_program() {
  run::Events events;
  events.add(segment(1 << 30, 20 * kMiB)).allocate(1, 10 * kMiB).allocate(2, 10 * kMiB);
  events.add(segment(2 << 30, 20 * kMiB)).allocate(3, 20 * kMiB).free(1);
  return events;
}

}  // namespace

TEST_CASE("a request that failed is part of the workload: asked for, in the floor, and freed at once") {
  run::Events events = failed_program();
  events.add(failure(24 * kMiB, 10 * kMiB, 4)).free(3);
  const Workload workload(events.all());
  REQUIRE(workload.failures().size() == 1);
  const Workload::Failure& failed = workload.failures()[0];
  CHECK(failed.event == 6);
  CHECK(failed.asked == 24 * kMiB);
  CHECK(failed.live == 30 * kMiB);
  CHECK(failed.reserved == 40 * kMiB);
  CHECK(failed.cap() == 50 * kMiB);
  CHECK(failed.stream == 1);
  CHECK(workload.streams() == 2);
  CHECK(workload.peak_live() == 54 * kMiB);
  CHECK(workload.peak_event() == 6);
  CHECK(workload.largest() == 20 * kMiB);  // the largest that was served
  CHECK(workload.objects()[failed.object].end == workload.objects()[failed.object].begin + 1);

  const Workload served(events.all(), 0, Workload::Ask::kNone);
  CHECK(served.failures().size() == 1);
  CHECK(served.failures()[0].object == Workload::kNotAsked);
  CHECK(served.operations() == workload.operations() - 2);
  CHECK(served.streams() == 1);
  CHECK(served.peak_live() == 40 * kMiB);
}

TEST_CASE("of several failures the last one alone may be asked for") {
  run::Events events = failed_program();
  events.add(failure(100 * kMiB, 0)).add(segment(2 << 30, 20 * kMiB, EventKind::kSegmentFree));
  events.add(failure(1 * kMiB, 7));
  const Workload workload(events.all(), 0, Workload::Ask::kLast);
  REQUIRE(workload.failures().size() == 2);
  CHECK(workload.failures()[0].object == Workload::kNotAsked);
  CHECK(workload.failures()[1].object != Workload::kNotAsked);
  CHECK(workload.failures()[1].cap() == 20 * kMiB + 7);
  CHECK(workload.peak_live() == 40 * kMiB);
}

TEST_CASE("a request that no device has room for ends a run under every policy, and none throws") {
  for (const Size asked : {Size{1} << 30, Size{1} << 40, (Size{1} << 42) - 1}) {
    run::Events events = failed_program();
    events.add(failure(asked, 10 * kMiB));
    const Workload workload(events.all());
    CHECK((workload.failures()[0].object == Workload::kNotAsked) == (asked == Size{1} << 42));
    for (const PolicyInfo& policy : policies(Substrate::kSimulation)) {
      CAPTURE(policy.name);
      CAPTURE(asked);
      const Simulation result =
          simulate(workload, policy.name, {.cap = 100 * kMiB, .samples = 0, .timed = false});
      CHECK_FALSE(result.completed);
      // A plan of the whole run has no room for its start either.
      if (policy.name != "planned") CHECK(result.oom->event == 6);
    }
  }
}

TEST_CASE("a request of 2^42 bytes is told, and not asked for") {
  run::Events events = failed_program();
  events.add(failure(Size{1} << 42, 10 * kMiB));
  const Workload workload(events.all());
  CHECK(workload.failures()[0].object == Workload::kNotAsked);
  CHECK(workload.failures()[0].asked == Size{1} << 42);
  CHECK(workload.peak_live() == 40 * kMiB);
}

TEST_CASE("under the inferred cap, what packs tightly serves what the recorded allocator could not") {
  run::Events events;  // every second of ten blocks is freed: no hole of theirs holds 20 MiB
  Offset at = 1 << 30;
  for (ObjectId i = 0; i < 10; ++i, at += 12 * kMiB)
    events.add(segment(at, 12 * kMiB)).allocate(i, 12 * kMiB);
  for (ObjectId i = 0; i < 10; i += 2) events.free(i);
  // What PyTorch gave back before it gave up is not in the recording: its segments were cut.
  events.add(failure(24 * kMiB, 2 * kMiB));
  const Workload workload(events.all());
  const Size cap = workload.failures()[0].cap();
  CHECK(cap == 122 * kMiB);
  CHECK(simulate(workload, "memoir", {.cap = cap, .samples = 0, .timed = false}).completed);
  const Simulation tight = simulate(workload, "memoir", {.cap = 83 * kMiB, .samples = 0, .timed = false});
  CHECK_FALSE(tight.completed);
}

}  // namespace memoir
