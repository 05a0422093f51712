// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/objects/lives.h"

#include <random>
#include <unordered_map>

#include "doctest/doctest.h"
#include "memoir/base/error.h"

namespace memoir {
namespace {

Event event(EventKind kind, ObjectId object = 0, Size size = 0, std::uint32_t thread = 0) {
  Event made;
  made.kind = kind;
  made.object = object;
  made.size = size;
  made.thread = thread;
  return made;
}

using enum EventKind;

}  // namespace

TEST_CASE("the drawing of lives.h") {
  const std::vector<Event> events{event(kAllocate, 7, 64), event(kAllocate, 9, 8),
                                  event(kAddress, 9, 0x1000, 2), event(kFree, 7), event(kAllocate, 4)};
  const Lives lives(events);
  REQUIRE(lives.size() == 3);
  CHECK(lives[0] == Life{.begin = 0, .end = 3});
  CHECK(lives[1] == Life{.begin = 1, .address = 0x1000, .pool = 2});
  CHECK(lives[2] == Life{.begin = 4});
  CHECK(lives.allocation(1).size == 8);
  const std::vector<std::uint32_t> numbers{0, 1, 1, 0, 2};
  for (std::uint32_t i = 0; i < events.size(); ++i) CHECK(lives.number(i) == numbers[i]);
  CHECK(Lives({}).size() == 0);
}

TEST_CASE("ids one after the other need no table: the same as of others") {
  std::vector<Event> events{event(kAllocate, 7, 64), event(kAllocate, 8, 8), event(kAddress, 8, 0x1000, 2),
                            event(kFree, 7),         event(kAllocate, 9),    event(kFree, 8)};
  events[0].address = 0x40;
  const Lives close(events);
  std::vector<Event> others = events;
  for (Event& each : others) each.object = each.object == 9 ? 1'000'000 : each.object;
  const Lives wide(others);
  REQUIRE(close.size() == 3);
  for (std::uint32_t number = 0; number < 3; ++number) CHECK(close[number] == wide[number]);
  for (std::uint32_t i = 0; i < events.size(); ++i) CHECK(close.number(i) == wide.number(i));
  CHECK(close[0] == Life{.begin = 0, .end = 3, .address = 0x40});
  CHECK(close[1] == Life{.begin = 1, .end = 5, .address = 0x1000, .pool = 2});
  CHECK_THROWS_WITH_AS((Lives{std::vector<Event>{event(kAllocate, 5), event(kFree, 6), event(kAllocate, 6)}}),
                       "event 1: object 6 is freed but was never allocated", Error);
}

TEST_CASE("a free that is asked for first") {
  const std::vector<Event> events{event(kAllocate, 1), event(kFreeRequested, 1), event(kFree, 1)};
  CHECK(Lives(events)[0] == Life{.begin = 0, .end = 2, .is_free_requested = true});
}

TEST_CASE("events that cannot be are named by their number") {
  const auto refused = [](std::vector<Event> events, const char* error) {
    CHECK_THROWS_WITH_AS(Lives{events}, error, Error);
  };
  refused({event(kSite), event(kFree, 1)}, "event 1: object 1 is freed but was never allocated");
  refused({event(kAddress, 1)}, "event 0: object 1 gets an address but was never allocated");
  refused({event(kFreeRequested, 1)}, "event 0: object 1 is released but was never allocated");
  refused({event(kAllocate, 1), event(kFree, 1), event(kFree, 1)}, "event 2: object 1 is freed twice");
  refused({event(kAllocate, 1), event(kFree, 1), event(kAddress, 1)},
          "event 2: object 1 gets an address after its free");
  refused({event(kAllocate, 1), event(kFree, 1), event(kFreeRequested, 1)},
          "event 2: object 1 is released after its free");
  refused({event(kAllocate, 1), event(kFree, 1), event(kAllocate, 1)},
          "event 2: object 1 is allocated twice; object ids are never reused");
}

TEST_CASE("against a map, on random events") {
  std::mt19937_64 random(1);
  std::vector<Event> events;
  std::vector<ObjectId> live;
  std::unordered_map<ObjectId, std::pair<std::uint32_t, std::uint32_t>> expected;
  for (std::uint32_t i = 0; i < 50'000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const ObjectId object = random() % 2 == 0 ? i : random();
      if (expected.contains(object)) {
        events.push_back(event(kPassBegin, i));
        continue;
      }
      events.push_back(event(kAllocate, object, 1));
      expected[object] = {i, Life::kNever};
      live.push_back(object);
    } else {
      std::swap(live[random() % live.size()], live.back());
      events.push_back(event(kFree, live.back()));
      expected[live.back()].second = i;
      live.pop_back();
    }
  }
  const Lives lives(events);
  REQUIRE(lives.size() == expected.size());
  std::uint32_t last = 0;
  for (std::uint32_t number = 0; number < lives.size(); ++number) {
    const auto& [begin, end] = expected[lives.allocation(number).object];
    REQUIRE(lives[number].begin == begin);
    REQUIRE(lives[number].end == end);
    REQUIRE((number == 0 || begin > last));
    REQUIRE(lives.number(begin) == number);
    if (end != Life::kNever) REQUIRE(lives.number(end) == number);
    last = begin;
  }
}

TEST_CASE("passes, in the order in which they begin") {
  const std::vector<Event> events{event(kPassEnd, 9),        event(kPassBegin, 3, 0, 1), event(kPassBegin, 4),
                                  event(kAllocate, 1),       event(kPassEnd, 4),         event(kPassEnd, 3),
                                  event(kPassBegin, 5, 0, 2)};
  CHECK(passes_of(events) == std::vector<Pass>{{3, 1, 1, 5}, {4, 0, 2, 4}, {5, 2, 6, Pass::kNever}});
  CHECK(passes_of({}).empty());
}

}  // namespace memoir
