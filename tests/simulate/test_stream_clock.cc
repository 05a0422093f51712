// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "doctest/doctest.h"
#include "memoir/simulate/memory/stream_clock.h"

namespace memoir {

namespace {
using Kind = StreamEvent::Kind;

StreamEvent gets(StreamId stream, Range range) { return {Kind::kAllocate, stream, 0, range}; }
StreamEvent frees(Offset offset) { return {Kind::kFree, 0, 0, {offset, 0}}; }
StreamEvent waits(StreamId stream, StreamId other) { return {Kind::kWait, stream, other, {}}; }
}  // namespace

TEST_CASE("a stream is ordered after another once it waits for it, and after all that one waited for") {
  StreamClock clock(true);
  const Tick first = clock.now();
  CHECK(clock.is_ordered(0, first, 0));
  CHECK_FALSE(clock.is_ordered(0, first, 1));
  CHECK(clock.order(0, first, 1));
  CHECK(clock.is_ordered(0, first, 1));
  CHECK_FALSE(clock.is_ordered(1, first, 0));
  const Tick second = clock.now();
  CHECK_FALSE(clock.is_ordered(0, second, 1));  // the wait was for what was queued then
  CHECK(clock.order(1, second, 2));
  CHECK(clock.is_ordered(0, first, 2));  // by way of 1
  CHECK_FALSE(clock.is_ordered(0, second, 2));
  CHECK(clock.waits() == 2);
  CHECK(clock.order(1, second, 2));  // is so already: no second wait
  CHECK(clock.waits() == 2);
  CHECK(clock.log().size() == 2);
  CHECK(clock.log()[0] == waits(1, 0));
}

TEST_CASE("a captured stream cannot be ordered") {
  StreamClock clock;
  const Tick moment = clock.now();
  clock.capture(1, true);
  CHECK_FALSE(clock.order(0, moment, 1));
  CHECK_FALSE(clock.order(1, moment, 2));
  clock.capture(1, false);
  CHECK(clock.order(0, moment, 1));
  CHECK(clock.waits() == 1);
}

TEST_CASE("the checker follows waits, and the waits of those waited for") {
  CHECK_FALSE(check_stream_order({}));
  const std::vector<StreamEvent> one = {gets(0, {0, 100}), frees(0), gets(0, {50, 10})};
  CHECK_FALSE(check_stream_order(one));
  const std::vector<StreamEvent> chain = {gets(0, {0, 100}), frees(0), waits(1, 0), waits(2, 1),
                                          gets(2, {0, 100})};
  CHECK_FALSE(check_stream_order(chain));
  // 1 waits for 0 and uses the bytes; 2 waits for 1 only.
  const std::vector<StreamEvent> inherited = {
      gets(0, {0, 100}), frees(0), waits(1, 0), gets(1, {0, 100}), frees(0), waits(2, 1), gets(2, {0, 100})};
  CHECK_FALSE(check_stream_order(inherited));
}

TEST_CASE("the checker finds every kind of fault") {
  struct Fault {
    std::vector<StreamEvent> log;
    size_t event;
    const char* what;
  };
  const Fault faults[] = {
      {{gets(0, {0, 100}), frees(0), gets(1, {99, 1})}, 2, "stream 1 gets bytes of event 0 on stream 0"},
      {{gets(0, {0, 100}), waits(1, 0), frees(0), gets(1, {0, 100})}, 3, "without waiting"},  // too early
      {{gets(0, {0, 100}), frees(0), waits(0, 1), gets(1, {0, 100})}, 3, "without waiting"},  // the wrong way
      {{gets(0, {0, 100}), frees(0), waits(2, 0), gets(1, {0, 100})}, 3, "without waiting"},  // another waits
      {{gets(0, {0, 50}), gets(1, {50, 50}), frees(0), frees(50), waits(2, 0), gets(2, {40, 20})},
       5,
       "of event 1 on stream 1"},
      // The part that 1 did not take is still 0's.
      {{gets(0, {0, 100}), frees(0), waits(1, 0), gets(1, {0, 50}), frees(0), gets(2, {60, 10})},
       5,
       "of event 0 on stream 0"},
      {{gets(0, {0, 100}), gets(0, {50, 10})}, 1, "live since event 0"},
      {{gets(0, {50, 10}), gets(0, {0, 51})}, 1, "live since event 0"},
      {{gets(0, {0, 100}), frees(1)}, 1, "nothing lives at 1"},
      {{gets(0, {0, 100}), frees(0), frees(0)}, 2, "nothing lives at 0"},
  };
  for (const Fault& fault : faults) {
    const auto found = check_stream_order(fault.log);
    REQUIRE(found);
    CAPTURE(found->what);
    CHECK(found->event == fault.event);
    CHECK(found->what.find(fault.what) != std::string::npos);
  }
}

}  // namespace memoir
