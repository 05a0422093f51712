// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/plan_run.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/plan_file.h"
#include "memoir/simulate/workload.h"
#include "simulate/events.h"
#include "support/gpu_trace_events.h"

namespace memoir {
namespace {

using run::Events;

Event on(EventKind kind, ObjectId object, Size size, StreamId stream, std::uint16_t device = 0) {
  Event event;
  event.kind = kind;
  event.object = object;
  event.size = size;
  event.stream = stream;
  event.device = device;
  return event;
}

}  // namespace

TEST_CASE("a run of a device, streams and all, with what outlives it") {
  Events events;
  events.add(on(EventKind::kAllocate, 1, 1000, 4, 2)).add(on(EventKind::kAllocate, 2, 0, 4, 2));
  events.add(on(EventKind::kAllocate, 3, 999, 0, 0)).add(on(EventKind::kAllocate, 4, 300, 9, 2));
  events.add(on(EventKind::kFree, 1, 0, 4, 2)).add(on(EventKind::kAllocate, 5, 1024, 4, 2));
  const ProgramPlan plan = plan_run(events.all(), 2, 512);
  CHECK(plan.memories ==
        std::vector<PlannedMemory>{{.name = "device 2", .alignment = 512, .size = 1536, .load = 1324}});
  CHECK(plan.planner == "pool");
  REQUIRE(plan.sequence.size() == 3);
  CHECK(plan.sequence[0] ==
        PlannedAllocation{.size = 1000, .lifetime = {0, 2}, .offset = 0, .stream = 4, .device = 2});
  CHECK(plan.sequence[1] ==
        PlannedAllocation{.size = 300, .lifetime = {1, 4}, .offset = 1024, .stream = 9, .device = 2});
  CHECK(plan.sequence[2] ==
        PlannedAllocation{.size = 1024, .lifetime = {3, 4}, .offset = 0, .stream = 4, .device = 2});
  CHECK(read_plan(write_plan(plan), "p") == plan);
}

TEST_CASE("a private pool has a memory of its own") {
  Events events;
  Event pool;
  pool.kind = EventKind::kPool;
  pool.thread = 1;
  events.add(pool).add(on(EventKind::kAllocate, 1, 1000, 0));
  events.add(on(EventKind::kAllocate, 2, 500, 0));
  Event address = on(EventKind::kAddress, 2, 0x10000, 0);
  address.thread = 1;
  events.add(address).add(on(EventKind::kFree, 2, 0, 0)).add(on(EventKind::kAllocate, 3, 24, 0));
  const ProgramPlan plan = plan_run(events.all(), 0, 512);
  REQUIRE(plan.memories.size() == 2);
  CHECK(plan.memories[1] ==
        PlannedMemory{.name = "device 0, pool 1", .alignment = 512, .size = 512, .load = 500});
  CHECK(plan.sequence[1].pool == 1);
  CHECK(plan.sequence[1].memory == 1);
  CHECK(recorded_for(plan, 0, 0).sequence.size() == 2);
  CHECK(recorded_for(plan, 0, 1).arena_size == 512);
  CHECK(read_plan(write_plan(plan), "p") == plan);
}

TEST_CASE("what a heap takes of it is what the simulated guided pool follows") {
  for (const char* name : {"gpt2m_varlen", "silmont_mem.d0", "llama7b_lora_zero3_2stream"}) {
    CAPTURE(name);
    const auto events =
        gpu_trace::events_of(gpu_trace::read(std::string(MEMOIR_TEST_DATA "/gpu/") + name + ".trace"));
    const RecordedPlan simulated = plan_workload(Workload(events), 512);
    const ProgramPlan plan = plan_run(events, 0, 512);
    const RecordedPlan own = recorded_for(plan);
    CHECK(own.arena_size == simulated.arena_size);
    CHECK(own.load == simulated.load);
    REQUIRE(own.sequence.size() == simulated.sequence.size());
    size_t different = 0;
    for (size_t i = 0; i < own.sequence.size(); ++i) {
      const PlannedAllocation &a = own.sequence[i], &b = simulated.sequence[i];
      different += a.size != b.size || a.alignment != b.alignment || a.lifetime != b.lifetime ||
                   a.offset != b.offset || a.site != b.site;
    }
    CHECK(different == 0);
    CHECK(read_plan(write_plan(plan), "p") == plan);
  }
}

TEST_CASE("alignments that cannot be") {
  CHECK_THROWS_WITH_AS(plan_run(std::span<const Event>(), 0, 0),
                       doctest::Contains("0 bytes is not a power of two"), Error);
  CHECK_THROWS_WITH_AS(plan_run(std::span<const Event>(), 0, 96), doctest::Contains("96 bytes"), Error);
  CHECK(plan_run(std::span<const Event>(), 0, 512).sequence.empty());
}

}  // namespace memoir
