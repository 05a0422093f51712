// SPDX-License-Identifier: Apache-2.0
//
// What no writer of ours writes and a file may hold all the same, event after event.
#include "memoir/trace/objects/event_checker.h"

#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/trace/format.h"

namespace memoir {

namespace {

/// Why an event cannot follow a pass that has begun with objects 1 (freed again) and 2 on device 0; empty
/// when it can.
std::string why(const Event& last) {
  const std::vector<Event> first = {
      {.kind = EventKind::kPassBegin, .time = 10},
      {.kind = EventKind::kAllocate, .object = 1, .site = 11, .size = 4096, .time = 11},
      {.kind = EventKind::kAllocate, .object = 2, .site = 11, .size = 512, .time = 12},
      {.kind = EventKind::kFree, .object = 1, .time = 13}};
  EventChecker checker;
  MetadataArray<Event> before;
  for (const Event& event : first) {
    REQUIRE(checker.refusal(event, before) == "");
    REQUIRE(before.push_back(event));
  }
  Event event = last;
  if (event.time == 0) event.time = 14;
  return checker.refusal(event, before);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("events that cannot be") {
  using enum EventKind;
  using trace_format::kMaxSize;
  CHECK(why({.kind = kAllocate, .object = 3, .size = 8}).empty());
  CHECK(contains(why({.kind = kAllocate, .object = 3, .size = ~Size{0}}),
                 "object 3 has 18446744073709551615 bytes, over 2^56"));
  CHECK(contains(why({.kind = kAllocate, .object = 3, .size = kMaxSize + 1}), "over 2^56"));
  CHECK(contains(why({.kind = kAllocate, .object = 3, .size = kMaxSize}),
                 "live objects add up to more than 2^56"));
  CHECK(contains(why({.kind = kAllocate, .alignment_log2 = 64, .object = 3, .size = 8}), "aligned to 2^64"));
  CHECK(contains(why({.kind = kAllocate, .object = 1, .size = 8}), "object 1 is allocated a second time"));
  CHECK(contains(why({.kind = kFree, .object = 7}), "object 7 is freed but was never allocated"));
  CHECK(contains(why({.kind = kFree, .object = 1}), "object 1 is freed a second time"));
  CHECK(contains(why({.kind = kPassEnd, .object = 3}), "pass 3 ends but is not running"));
  CHECK(contains(why({.kind = kPassBegin}), "pass 0 begins a second"));
  CHECK(contains(why({.kind = static_cast<EventKind>(15)}), "unknown kind 15"));
  CHECK(contains(why({.kind = kFree, .object = 2, .time = 1}), "its time, 1 ns"));
  CHECK(contains(why({.kind = kFree, .object = 2, .time = ~Tick{0}}), "its time"));
}

TEST_CASE("events of devices that cannot be") {
  using enum EventKind;
  using trace_format::kMaxSize;
  CHECK(contains(why({.kind = kPassEnd, .device = 1}), "it names device 1 and stream 0"));
  CHECK(contains(why({.kind = kPassEnd, .stream = 7}), "it names device 0 and stream 7"));
  CHECK(contains(why({.kind = kSegmentMap, .object = 4096}),
                 "the segment of 0 bytes at 4096 on device 0 is empty"));
  CHECK(contains(why({.kind = kSegmentMap, .object = 4096, .size = kMaxSize + 1}), "over 2^56"));
  CHECK(contains(why({.kind = kSegmentMap, .object = ~Offset{0}, .size = 2}), "ends beyond 2^63"));
  CHECK(contains(why({.kind = kOutOfMemory, .size = ~Size{0}}), "asks for 18446744073709551615 bytes"));
  CHECK(contains(why({.kind = kOutOfMemory, .object = ~Size{0}}), "bytes are free on device 0, over 2^56"));
  CHECK(contains(why({.kind = kPool, .thread = 1}), "pool 1 is (0, 0), as another one is"));
  CHECK(contains(why({.kind = kPool, .device = 3, .thread = 1, .object = 1}),
                 "it names device 3 and stream 0"));
}

TEST_CASE("2^56 bytes may live at once, again and again") {
  constexpr Size kMost = Size{1} << 56;
  EventChecker checker;
  MetadataArray<Event> before;
  const auto refusal = [&](const Event& event) {
    const std::string why = checker.refusal(event, before);
    REQUIRE(before.push_back(event));
    return why;
  };
  Event event{};
  for (ObjectId object = 1; object <= 4; ++object) {
    CAPTURE(object);
    event = {};
    event.kind = EventKind::kAllocate;
    event.object = object;
    event.size = kMost;
    CHECK(refusal(event) == "");
    event = {};
    event.kind = EventKind::kFree;
    event.object = object;
    CHECK(refusal(event) == "");
  }
  event = {};
  event.kind = EventKind::kAllocate;
  event.object = 5;
  event.size = kMost;
  CHECK(refusal(event) == "");
  event.object = 6;
  event.size = 1;
  CHECK(refusal(event) == "the live objects add up to more than 2^56 bytes");
}

}  // namespace memoir
