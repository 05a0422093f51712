// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/learning_heap.h"

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "heap/checked_streams.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/simulate/memory/stream_clock.h"
#include "policy/device_loop.h"

namespace memoir {

namespace {

using run::DeviceDriver;
using run::DeviceRun;
using run::DeviceStep;

double ratio_of(const SimArena& arena, const DeviceRun& device) {
  return static_cast<double>(arena.peak_committed()) / static_cast<double>(device.peak);
}

/// Holds a pool to what every heap promises: no byte twice, and to its streams' order.
class Checked {
 public:
  Checked(LearningHeap& pool, CheckedStreams* streams) : pool_(pool), streams_(streams) {}

  /// The offset, or kNoOffset when it was refused.
  Offset allocate(Size size, StreamId stream = 0, Size alignment = 1) {
    const Offset offset = pool_.allocate({.size = size, .alignment = alignment, .stream = stream});
    if (offset == kNoOffset) return offset;
    REQUIRE(offset % alignment == 0);
    const auto next = objects_.lower_bound(offset);
    REQUIRE((next == objects_.end() || offset + size <= next->first));
    if (next != objects_.begin()) REQUIRE(std::prev(next)->second.range.end() <= offset);
    if (streams_ != nullptr) REQUIRE(streams_->may_use({offset, size}, stream));
    REQUIRE(pool_.size_of(offset) >= size);
    objects_[offset] = {{offset, size}, stream};
    live_ += size;
    REQUIRE(pool_.live() == live_);
    return offset;
  }
  void free(Offset offset) {
    const Object object = objects_.at(offset);
    if (streams_ != nullptr) streams_->used(object.range, object.stream);
    REQUIRE(pool_.free(offset));
    objects_.erase(offset);
    live_ -= object.range.size;
    REQUIRE(pool_.live() == live_);
    REQUIRE(pool_.size_of(offset) == 0);
    REQUIRE_FALSE(pool_.free(offset));
  }
  void free_all() {
    while (!objects_.empty()) free(objects_.begin()->first);
  }
  Size live() const { return live_; }

 private:
  struct Object {
    Range range;
    StreamId stream = 0;
  };
  LearningHeap& pool_;
  CheckedStreams* streams_;
  std::map<Offset, Object> objects_;
  Size live_ = 0;
};

struct Step {
  bool allocates;
  size_t object;  // of the round
};
/// A round of a loop: objects of random sizes and streams, some of which pass into the next round.
struct Round {
  std::vector<Size> sizes;
  std::vector<StreamId> streams;
  std::vector<Step> steps;

  Round(size_t count, StreamId several, unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<size_t> live;
    for (size_t i = 0; i < count; ++i) {
      sizes.push_back(random() % 4 == 0 ? 1 + random() % (64 * kMiB) : 1 + random() % (256 * kKiB));
      streams.push_back(static_cast<StreamId>(random() % several));
      steps.push_back({true, i});
      live.push_back(i);
      while (live.size() > 4 + 12 * (i * 4 / count % 2)) {
        const size_t at = random() % live.size();
        steps.push_back({false, live[at]});
        live[at] = live.back();
        live.pop_back();
      }
    }
  }
};

class Loop {
 public:
  explicit Loop(const Round& round) : round_(round), at_(round.sizes.size(), kNoOffset) {}

  /// `departs`: one request in so many is left out or changed; 0: none.
  bool run(Checked& pool, std::mt19937_64& random, unsigned departs = 0) {
    // What was kept from the round before is freed at the start of this one.
    for (Offset& offset : at_) {
      if (offset != kNoOffset) pool.free(offset);
      offset = kNoOffset;
    }
    for (const Step& step : round_.steps) {
      Offset& offset = at_[step.object];
      if (!step.allocates) {
        if (offset != kNoOffset) pool.free(offset);
        offset = kNoOffset;
        continue;
      }
      Size size = round_.sizes[step.object];
      if (departs != 0 && random() % departs == 0) {
        if (random() % 2 == 0) continue;
        size = 1 + random() % (8 * kMiB);
      }
      offset = pool.allocate(size, round_.streams[step.object]);
      if (offset == kNoOffset) return false;
    }
    return true;
  }
  void forget() { std::fill(at_.begin(), at_.end(), kNoOffset); }

 private:
  const Round& round_;
  std::vector<Offset> at_;
};

}  // namespace

TEST_CASE(
    "recorded programs as loops: no device calls once two rounds were seen, and hardly more than what "
    "lives") {
  for (const std::string& name : run::device_run_names()) {
    CAPTURE(name);
    const DeviceRun device = run::device_run(name);
    SimArena arena(400 * kGiB, {.granule = 2 * kMiB});
    StreamClock clock(true);
    LearningHeap pool(arena, {}, &clock);
    DeviceDriver driver(device, pool, &clock);
    REQUIRE(driver.take(device.setup));
    const auto calls_of_rounds = [&](int rounds) {
      const std::uint64_t before = pool.pool().counters().calls();
      for (int i = 0; i < rounds; ++i) REQUIRE(driver.iterate());
      return pool.pool().counters().calls() - before;
    };
    calls_of_rounds(2);
    const std::uint64_t third = calls_of_rounds(1);  // a slab may be made at its start, when least lives
    CHECK(third <= 64);
    CHECK(calls_of_rounds(5) == 0);
    MESSAGE(name << ": " << ratio_of(arena, device) << ", plans " << pool.counters().plans << ", planned "
                 << pool.counters().planned << ", calls in the third round " << third << ", waits "
                 << clock.waits());
    CHECK(arena.peak_committed() <= device.peak + device.peak / 100 + 4 * kMiB);
    CHECK_FALSE(check_stream_order(clock.log()));
    if (device.history.size() > 2000) CHECK(pool.counters().planned > 0);
  }
}

TEST_CASE(
    "loops are followed, left, and learned again, on one stream and on several, and no byte is given twice") {
  for (const StreamId streams : {1u, 3u}) {
    std::uint64_t plans = 0, planned = 0;
    for (unsigned seed = 1; seed <= (streams == 1 ? 6 : 4); ++seed) {
      CAPTURE(seed);
      CAPTURE(streams);
      const size_t most = streams == 1 ? 1500 : 200;  // the checker of streams looks at all uses
      const Round first(most / 5 * seed, streams, seed), second(most / 3, streams, seed + 100);
      SimArena arena(32 * kGiB, {.granule = 64 * kKiB});
      CheckedStreams order;
      LearningHeap pool(arena, {{.patience = 1000}},
                        &order);  // it moves memory rather than grow: there is trouble
      Checked checked(pool, streams == 1 ? nullptr : &order);
      std::mt19937_64 random(seed);
      const Offset kept = checked.allocate(48 * kMiB);
      for (int phase = 0; phase < 4; ++phase) {
        Loop loop(phase % 2 == 0 ? first : second);
        for (int i = 0; i < 5; ++i) REQUIRE(loop.run(checked, random));
        REQUIRE(loop.run(checked, random, 200));
        REQUIRE(loop.run(checked, random, 3));
        if (phase == 1) pool.trim();
        if (phase == 2) {
          order.refuses = true;  // as while something is captured: the plan cannot be left
          for (int i = 0; i < 3; ++i) REQUIRE(loop.run(checked, random, 20));
          order.refuses = false;
        }
        for (int i = 0; i < 3; ++i) REQUIRE(loop.run(checked, random));
        if (phase != 3) continue;
        checked.free_all();
        loop.forget();
      }
      CHECK(kept != kNoOffset);
      CHECK(pool.live() == 0);
      pool.trim();
      CHECK_FALSE(pool.follows());
      CHECK(arena.committed() == 0);
      plans += pool.counters().plans;
      planned += pool.counters().planned;
      CHECK(pool.counters().dropped == pool.counters().plans);
    }
    MESSAGE(streams << " streams: " << plans << " plans, " << planned << " objects planned");
    CHECK(plans >= 4);
    CHECK(planned > 1000);
  }
}

TEST_CASE("gradients that live on through the next forward pass are not an obstacle") {
  // Forward: results are kept. Then the old gradients go; backward: gradients come, results go.
  constexpr size_t kLayers = 48;
  for (const bool before_forward : {true, false}) {  // where the old gradients are freed
    CAPTURE(before_forward);
    std::mt19937_64 random(1);
    std::vector<Size> results, gradients, scratch;
    for (size_t i = 0; i < kLayers; ++i) {
      results.push_back(kMiB * (4 + random() % 24) + 512 * (random() % 512));
      gradients.push_back(kMiB * (2 + random() % 30) + 512 * (random() % 512));
      scratch.push_back(kMiB * (1 + random() % 40));
    }
    // as small compared with the objects as on a real device
    SimArena arena(32 * kGiB, {.granule = 64 * kKiB});
    LearningHeap pool(arena, {{.patience = 1000}});  // there is trouble
    Checked checked(pool, nullptr);
    std::vector<Offset> weights, kept, old;
    for (const Size size : gradients) weights.push_back(checked.allocate(size));
    Size peak = 0;
    std::uint64_t calls = 0;
    const auto drop_old = [&] {
      for (const Offset offset : old) checked.free(offset);
      old.clear();
    };
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t before = pool.pool().counters().calls();
      if (before_forward) drop_old();
      for (size_t i = 0; i < kLayers; ++i) {
        const Offset work = checked.allocate(scratch[i]);
        kept.push_back(checked.allocate(results[i]));
        peak = std::max(peak, checked.live());
        checked.free(work);
      }
      drop_old();
      for (size_t i = kLayers; i-- > 0;) {
        const Offset work = checked.allocate(scratch[i]);
        old.push_back(checked.allocate(gradients[i]));
        peak = std::max(peak, checked.live());
        checked.free(work);
        checked.free(kept.back());
        kept.pop_back();
      }
      calls = pool.pool().counters().calls() - before;
    }
    MESSAGE("reserved " << static_cast<double>(arena.peak_committed()) / static_cast<double>(peak)
                        << " of the peak, " << pool.counters().planned << " planned");
    CHECK(pool.follows());
    CHECK(calls == 0);
    CHECK(arena.peak_committed() <= peak + peak / 33);
  }
}

TEST_CASE(
    "a plan never costs a request: under a cap another phase has all the memory that it would have had") {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const Round loop_round(400, 1, seed);
    for (const bool learn : {false, true}) {
      SimArena unbounded(512 * kGiB, {.granule = 2 * kMiB});
      DevicePoolHeap sized(unbounded);
      Size most = 0;
      {  // the most that the loop holds
        LearningHeap pool(unbounded, {{}, false});
        Checked checked(pool, nullptr);
        std::mt19937_64 random(seed);
        Loop loop(loop_round);
        for (int i = 0; i < 3; ++i) REQUIRE(loop.run(checked, random));
        most = align_up(unbounded.peak_committed(), 2 * kMiB);
        checked.free_all();
      }
      SimArena arena(512 * kGiB, {.granule = 2 * kMiB, .limit = most + 8 * kMiB});
      LearningHeap pool(arena, {{}, learn});
      Checked checked(pool, nullptr);
      std::mt19937_64 random(seed);
      Loop loop(loop_round);
      for (int i = 0; i < 6; ++i) REQUIRE(loop.run(checked, random));
      CHECK(pool.follows() == (learn && pool.counters().plans > pool.counters().dropped));
      checked.free_all();
      const Offset all = checked.allocate(most);  // another phase: one object of everything
      CHECK(all != kNoOffset);
      CHECK_FALSE(pool.follows());
    }
  }
}

TEST_CASE("rounds that differ a little are followed; what they have more than the plan is served online") {
  int followed = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    const Round round(2000, 1, seed);
    SimArena arena(512 * kGiB, {.granule = 2 * kMiB});
    LearningHeap pool(arena, {{.patience = 1000}});
    Checked checked(pool, nullptr);
    std::mt19937_64 random(seed);
    Loop loop(round);
    for (int i = 0; i < 4; ++i) REQUIRE(loop.run(checked, random));
    if (!pool.follows()) continue;  // it had settled by itself
    ++followed;
    const std::uint64_t planned = pool.counters().planned;
    for (int i = 0; i < 20; ++i) {
      // a number that is logged
      const Offset extra = checked.allocate(3000 + 512 * static_cast<Size>(i % 3));
      REQUIRE(extra != kNoOffset);
      REQUIRE(loop.run(checked, random));
      checked.free(extra);
    }
    CHECK(pool.follows());
    CHECK(pool.counters().planned - planned >= 20 * 1990);
    CHECK(pool.counters().departed <= 60);
  }
  CHECK(followed >= 2);
}

TEST_CASE("a small program whose weights pin more granules than their bytes is planned") {
  const DeviceRun device = run::device_run("rounds/small_transformer");
  SimArena arena(400 * kGiB, {.granule = 2 * kMiB});
  LearningHeap pool(arena);
  DeviceDriver driver(device, pool);
  constexpr size_t kLast = 2 * 137;  // requests of the last two rounds
  const std::vector<DeviceStep>& steps = device.history;
  size_t left = kLast, cut = steps.size();
  while (left != 0) left -= steps[--cut].allocates;
  REQUIRE(driver.take({steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(cut)}));
  CHECK(pool.follows());
  const std::uint64_t before = pool.pool().counters().calls();
  REQUIRE(driver.take({steps.begin() + static_cast<std::ptrdiff_t>(cut), steps.end()}));
  CHECK(pool.pool().counters().calls() == before);
}

TEST_CASE(
    "a plan that is late is followed from the start of a round on, and one that never comes is given up") {
  class LateRunner final : public PlanRunner {
   public:
    void start(std::shared_ptr<PlanJob> job) noexcept override { jobs.push_back(std::move(job)); }
    std::vector<std::shared_ptr<PlanJob>> jobs;
  };
  const Round round(400, 1, 3);
  const auto loop_of = [&](int rounds_late, int rounds) {
    SimArena arena(512 * kGiB, {.granule = 2 * kMiB});
    LateRunner runner;
    LearningHeap pool(arena, {{.patience = 1000}}, nullptr, nullptr, &runner);
    Checked checked(pool, nullptr);
    std::mt19937_64 random(3);
    Loop loop(round);
    for (int i = 0; i < rounds; ++i) {
      REQUIRE(loop.run(checked, random));
      if (i == rounds_late) {
        REQUIRE(!runner.jobs.empty());
        CHECK_FALSE(pool.follows());
        runner.jobs.back()->run();
      }
    }
    checked.free_all();
    return std::pair(pool.counters().plans, runner.jobs.size());
  };
  CHECK(loop_of(5, 8) == std::pair<std::uint64_t, size_t>(1, 1));
  CHECK(loop_of(-1, 200).first == 0);
  CHECK(loop_of(-1, 200).second > 1);  // it was asked for again
}

TEST_CASE("learning can be switched off, and needs what the pool needs") {
  const DeviceRun device = run::device_run("bcrafton_cs336.d0");
  SimArena arena(400 * kGiB, {.granule = 2 * kMiB});
  StreamClock clock;
  LearningHeap pool(arena, {{}, false}, &clock);
  DeviceDriver driver(device, pool);
  REQUIRE(driver.take(device.setup));
  for (int i = 0; i < 4; ++i) REQUIRE(driver.iterate());
  CHECK(pool.counters().plans == 0);
  SimArena small(kKiB, {.granule = 512});
  LearningHeap impossible(small, {{.alignment = 1000}});
  CHECK_FALSE(impossible.ok());
  CHECK(impossible.allocate({1}) == kNoOffset);
  CHECK_FALSE(impossible.free(0));
  impossible.trim();
  CHECK(impossible.live() == 0);
}

}  // namespace memoir
