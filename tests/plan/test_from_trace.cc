// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/from_trace.h"

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/plan_file.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/trace/write/trace_writer.h"

namespace memoir {
namespace {

Event allocate(ObjectId object, Size size, std::uint32_t thread = 0, SiteId site = 5) {
  Event event;
  event.kind = EventKind::kAllocate;
  event.alignment_log2 = 6;
  event.thread = thread;
  event.object = object;
  event.site = site;
  event.size = size;
  return event;
}
Event free_of(ObjectId object, std::uint32_t thread = 0) {
  Event event;
  event.kind = EventKind::kFree;
  event.thread = thread;
  event.object = object;
  return event;
}
Event pass_begin(std::uint64_t pass, std::uint32_t thread = 0) {
  Event event;
  event.kind = EventKind::kPassBegin;
  event.thread = thread;
  event.object = pass;
  return event;
}
Event pass_end(std::uint64_t pass, std::uint32_t thread = 0) {
  Event event = pass_begin(pass, thread);
  event.kind = EventKind::kPassEnd;
  return event;
}

}  // namespace

TEST_CASE("the drawing of recorded_plan.h") {
  const std::vector<Event> events{pass_begin(0),   allocate(1, 64), allocate(2, 8), free_of(1),
                                  allocate(3, 32), free_of(3),      pass_end(0)};
  const RecordedPass recorded = read_pass(events);
  CHECK(recorded.pass == 0);
  CHECK(recorded.problem == Problem{{{0, 2}, 64, 64}, {{3, 4}, 32, 64}});
  CHECK(recorded.escaping == Amount{1, 8});
  const RecordedPlan plan = record_plan(recorded, plan_quickly(recorded.problem), "auto");
  CHECK(plan.sequence == std::vector<PlannedAllocation>{
                             {5, 64, 64, {0, 2}, 0}, {5, 8, 64, {1, 5}, kNoOffset}, {5, 32, 64, {3, 4}, 0}});
  CHECK(plan.arena_size == 64);
  CHECK(plan.load == 64);
}

TEST_CASE("the last complete pass, or the one asked for") {
  const std::vector<Event> events{pass_begin(0), allocate(1, 10), free_of(1), pass_end(0), allocate(2, 99),
                                  pass_begin(1), allocate(3, 20), free_of(3), free_of(2),  pass_end(1),
                                  pass_begin(2), allocate(4, 30), free_of(4)};
  CHECK(read_pass(events).problem == Problem{{{0, 1}, 20, 64}});
  CHECK(read_pass(events, 0).problem == Problem{{{0, 1}, 10, 64}});
  CHECK_THROWS_WITH_AS(read_pass(events, 2), "pass 2 did not end before the recording did", Error);
  CHECK_THROWS_WITH_AS(read_pass(events, 7), "pass 7 is not in the trace", Error);
  CHECK_THROWS_WITH_AS(read_pass(std::span(events).subspan(10)), doctest::Contains("no complete pass"),
                       Error);
}

TEST_CASE("other threads' allocations are foreign; a free from any thread ends a lifetime") {
  const std::vector<Event> events{pass_begin(0), allocate(1, 64, 0), allocate(2, 7, 1), free_of(1, 1),
                                  free_of(2, 0), allocate(3, 0),     free_of(3),        pass_end(0)};
  const RecordedPass recorded = read_pass(events);
  CHECK(recorded.problem == Problem{{{0, 2}, 64, 64}});
  CHECK(recorded.foreign == Amount{1, 7});
  CHECK(recorded.empty == Amount{1, 0});
  CHECK(recorded.sequence.size() == 2);  // the empty one is matched too
  CHECK(recorded.objects == std::vector<ObjectId>{1, 3});
}

TEST_CASE("a trace without passes is one pass of every thread") {
  const std::vector<Event> events{allocate(1, 64, 0), allocate(2, 32, 1), free_of(1), free_of(2)};
  const RecordedPass recorded = read_pass(events);
  CHECK_FALSE(recorded.pass);
  CHECK(recorded.problem == Problem{{{0, 2}, 64, 64}, {{1, 3}, 32, 64}});
  CHECK(read_pass({}).problem.empty());
}

TEST_CASE("one device of several") {
  std::vector<Event> events{allocate(1, 64), allocate(2, 32), free_of(1), free_of(2)};
  events[1].device = events[3].device = 1;
  CHECK(read_pass(events).problem.size() == 2);
  const RecordedPass first = read_pass(events, std::nullopt, 0);
  CHECK(first.problem == Problem{{{0, 2}, 64, 64}});
  CHECK(first.elsewhere == Amount{1, 32});
  CHECK(read_pass(events, std::nullopt, 1).problem == Problem{{{1, 3}, 32, 64}});
}

TEST_CASE("of a pass that has tensors the mallocs are passed over; without passes both are read") {
  Event begin, end;
  begin.kind = EventKind::kPassBegin;
  end.kind = EventKind::kPassEnd;
  std::vector<Event> events{begin, allocate(1, 64), allocate(2, 32), free_of(2), free_of(1), end};
  events[2].family = Family::kMalloc;
  const RecordedPass tensors = read_pass(events);
  CHECK(tensors.objects == std::vector<ObjectId>{1});
  CHECK(tensors.mallocs == Amount{1, 32});
  events[1].family = Family::kNew;
  CHECK(read_pass(events).objects == std::vector<ObjectId>{1, 2});
  CHECK(read_pass(std::span(events).subspan(1, 4)).objects == std::vector<ObjectId>{1, 2});
}

TEST_CASE("events that cannot be are named by their number") {
  Event site;
  site.kind = EventKind::kSite;
  CHECK_THROWS_WITH_AS(read_pass(std::vector{site, free_of(1)}),
                       "event 1: object 1 is freed but was never allocated", Error);
  CHECK_THROWS_WITH_AS(read_pass(std::vector{allocate(1, 4), free_of(1), free_of(1)}),
                       "event 2: object 1 is freed twice", Error);
  CHECK_THROWS_WITH_AS(read_pass(std::vector{allocate(1, 4), free_of(1), allocate(1, 4)}),
                       doctest::Contains("event 2: object 1 is allocated twice"), Error);
  Event wide = allocate(1, 4);
  wide.alignment_log2 = 200;
  CHECK_THROWS_WITH_AS(read_pass(std::vector{wide}), doctest::Contains("2^200"), Error);
}

TEST_CASE("a trace as a recorder writes it, with its meta") {
  TraceWriter writer;
  CHECK(writer.meta("model", "tiny"));
  CHECK(writer.define_site(5, kNoSite, "aten::empty"));
  CHECK(writer.pass_begin(0, 0));
  CHECK(writer.allocate(1, 5, 100, 64, 0));
  CHECK(writer.free(1, 0));
  CHECK(writer.pass_end(0, 0));
  const RecordedPass recorded = read_pass(Trace::from_bytes(writer.bytes()));
  CHECK(recorded.problem == Problem{{{0, 1}, 100, 64}});
  CHECK(recorded.meta == std::vector<std::pair<std::string, std::string>>{{"model", "tiny"}});
  const RecordedPlan plan = record_plan(recorded, plan_quickly(recorded.problem), "auto");
  CHECK(read_plan(write_plan(program_of(plan)), "p") == program_of(plan));
}

}  // namespace memoir
