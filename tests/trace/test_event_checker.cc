// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/trace/objects/event_checker.h"

namespace memoir {

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
