// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/heap/pool/loop_detector.h"

namespace memoir {

namespace {

/// A program that only asks: what it asks for dies `lives` requests later.
class Program {
 public:
  explicit Program(LoopDetector& detector, std::uint32_t lives = 3) : detector_(detector), lives_(lives) {}
  void ask(Size size, StreamId stream = 0) {
    const std::uint32_t number = detector_.note_allocate(size, stream, live_, troubles);
    live_ += size;
    objects_.push_back({number, size});
    if (objects_.size() <= lives_) return;
    const auto [dead, bytes] = objects_[objects_.size() - 1 - lives_];
    detector_.note_free(dead);
    live_ -= bytes;
  }
  std::uint32_t troubles = 0;

 private:
  LoopDetector& detector_;
  std::uint32_t lives_;
  Size live_ = 0;
  std::vector<std::pair<std::uint32_t, Size>> objects_;
};

std::vector<Size> random_sizes(size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Size> sizes(count);
  for (Size& size : sizes) size = 512 * (1 + random() % 1000);
  return sizes;
}

}  // namespace

TEST_CASE("a loop is found at the end of its second round, when a round had trouble") {
  for (const size_t period : {16u, 64u, 1000u, 20000u}) {
    for (const size_t setup : {0u, 5u, 3000u}) {
      CAPTURE(period);
      CAPTURE(setup);
      LoopDetector detector;
      REQUIRE(detector.start());
      Program program(detector);
      for (const Size size : random_sizes(setup, 1)) program.ask(size);
      const auto round = random_sizes(period, 2);
      for (const Size size : round) program.ask(size);
      size_t asked = 0;
      for (const Size size : round) {
        CHECK_FALSE(detector.due());
        if (asked == period / 2) ++program.troubles;
        program.ask(size);
        ++asked;
      }
      // A place is looked up once in sixteen requests: a short loop may be known some rounds later.
      for (size_t i = 0; !detector.due() && period <= 64 && i < 8 * period; ++i) {
        if (i % period == 0) ++program.troubles;
        program.ask(round[i % period]);
      }
      if (!detector.due()) program.ask(round[0]);
      CHECK(detector.due());
      CHECK(detector.period() == period);
      // Its records know how long things live, and what was live.
      const auto& record = detector.record(detector.next() - detector.period());
      CHECK(record.size != 0);
      CHECK(record.end - record.begin <= 7);
    }
  }
}

TEST_CASE("without trouble, or without an end of what grows, no loop is due") {
  const auto round = random_sizes(200, 3);
  {
    LoopDetector detector;
    REQUIRE(detector.start());
    Program program(detector);
    for (int i = 0; i < 10; ++i) {
      for (const Size size : round) {
        program.ask(size);
        CHECK_FALSE(detector.due());
      }
    }
    CHECK(detector.period() == 200);
  }
  LoopDetector detector;
  REQUIRE(detector.start());
  Program grows(detector, 1'000'000);  // like the layers of a forward pass, whose results are kept
  for (int i = 0; i < 10; ++i) {
    for (const Size size : round) {
      ++grows.troubles;
      grows.ask(size);
      CHECK_FALSE(detector.due());
    }
  }
}

TEST_CASE(
    "a loop without trouble puts the detector to sleep; trouble wakes it, and two rounds later the loop is "
    "due") {
  const auto round = random_sizes(200, 3);
  LoopDetector detector;
  REQUIRE(detector.start());
  Program program(detector);
  const auto run_round = [&] {
    for (const Size size : round) program.ask(size);
  };
  for (int i = 0; i < 10; ++i) run_round();
  CHECK(detector.note_allocate(512, 0, 0, 0) != 0);  // awake: and the loop is broken
  for (int i = 0; i < 30; ++i) run_round();
  CHECK(detector.note_allocate(512, 0, 0, 0) == 0);
  const std::uint32_t next = detector.next();
  run_round();
  CHECK(detector.next() == next);
  detector.wake();
  CHECK(detector.next() > next);
  run_round();
  CHECK_FALSE(detector.due());
  ++program.troubles;
  run_round();
  CHECK(detector.due());
  detector.stop();
  detector.wake();
  CHECK(detector.note_allocate(512, 0, 0, 0) == 0);
}

TEST_CASE("the loop around a loop is found, however often the inner one repeats") {
  // A step of 30 requests, 20 equal layers whose results are kept until the step ends, 40 requests.
  const auto head = random_sizes(30, 4), layer = random_sizes(25, 5), tail = random_sizes(40, 6);
  LoopDetector detector;
  REQUIRE(detector.start());
  std::uint32_t troubles = 0;
  std::vector<std::uint32_t> step;
  Size live = 0;
  const auto ask = [&](Size size) {
    step.push_back(detector.note_allocate(size, 0, live, troubles));
    live += size;
  };
  const std::uint32_t period = 30 + 20 * 25 + 40;
  int due_in = 0;
  for (int round = 1; round <= 3 && due_in == 0; ++round) {
    ++troubles;
    for (const Size size : head) ask(size);
    for (int i = 0; i < 20; ++i) {
      for (const Size size : layer) ask(size);
    }
    for (const Size size : tail) ask(size);
    if (detector.due()) due_in = round;
    for (const std::uint32_t number : step) detector.note_free(number);
    step.clear();
    live = 0;
  }
  CHECK(due_in == 2);
  CHECK(detector.period() == period);
}

TEST_CASE("a program that changes is not a loop until it repeats again; streams distinguish requests") {
  LoopDetector detector;
  REQUIRE(detector.start());
  Program program(detector);
  const auto round = random_sizes(300, 7);
  const auto repeat = [&](int times, StreamId stream) {
    for (int i = 0; i < times; ++i) {
      ++program.troubles;
      for (const Size size : round) program.ask(size, stream);
    }
  };
  repeat(3, 0);
  CHECK(detector.due());
  program.ask(1, 0);
  CHECK_FALSE(detector.due());
  CHECK(detector.period() == 0);
  for (const Size size : round) program.ask(size, 1);  // the same on another stream
  CHECK_FALSE(detector.due());
  repeat(2, 1);
  CHECK(detector.due());
  detector.stop();
  CHECK_FALSE(detector.due());
  CHECK(detector.note_allocate(512, 0, 0, 0) == 0);
  REQUIRE(detector.start());
  detector.want_rounds(3);
  repeat(3, 0);
  CHECK_FALSE(detector.due());
  repeat(1, 0);  // three rounds that were like the one before
  CHECK(detector.due());
}

TEST_CASE("what is longer than it keeps, or never repeats, is left alone; old numbers are harmless") {
  LoopDetector detector;
  REQUIRE(detector.start());
  const std::uint32_t old = detector.note_allocate(512, 0, 0, 0);
  Program program(detector);
  std::mt19937_64 random(8);
  for (std::uint32_t i = 0; i < 3 * LoopDetector::kRecords; ++i) {
    ++program.troubles;
    program.ask(512 * (1 + random() % 50));
    REQUIRE_FALSE(detector.due());
  }
  const auto before = detector.record(old);
  detector.note_free(old);
  detector.note_free(0);
  CHECK(detector.record(old).end == before.end);
  const auto round = random_sizes(LoopDetector::kLongest + 1, 9);
  for (int i = 0; i < 3; ++i) {
    ++program.troubles;
    for (const Size size : round) program.ask(size);
    CHECK_FALSE(detector.due());
  }
}

}  // namespace memoir
