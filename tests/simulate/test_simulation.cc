// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/simulate/simulation.h"
#include "simulate/events.h"
#include "support/rounds.h"

namespace memoir {

namespace {

constexpr const char* kSpan = "span,granule=512";  // small, so that the numbers can be done by hand

/// Lifetimes and sizes at random, but the same for a seed.
run::Events random_events(unsigned seed, size_t objects) {
  std::mt19937_64 random(seed);
  run::Events events;
  std::vector<ObjectId> live;
  ObjectId next = 1;
  for (size_t i = 0; i < 2 * objects; ++i) {
    if (live.empty() || (random() % 100 < 52 && next <= objects)) {
      events.allocate(next, 1 + random() % (random() % 8 == 0 ? 4 * kMiB : 64 * kKiB));
      live.push_back(next++);
    } else {
      std::swap(live[random() % live.size()], live.back());
      events.free(live.back());
      live.pop_back();
    }
  }
  return events;
}

}  // namespace

TEST_CASE("a workload is the allocations and frees of one trace, in small numbers") {
  run::Events events;
  events.allocate(70, 1000).allocate(9, 0).allocate(71, 500).free(9).free(70).allocate(72, 800);
  const Workload workload(events.all());
  REQUIRE(workload.objects().size() == 3);
  CHECK(workload.empty() == 1);
  CHECK(workload.operations() == 4);
  CHECK(workload.peak_live() == 1500);
  CHECK(workload.peak_event() == 2);
  CHECK(workload.largest() == 1000);
  CHECK(workload.objects()[0].begin == 0);
  CHECK(workload.objects()[0].end == 2);
  CHECK(workload.objects()[2].end == workload.steps().size());
  CHECK(workload.steps()[2].kind == Workload::Kind::kFree);
  CHECK(workload.steps()[2].event == 4);
  CHECK(load(workload.problem()) == 1500);
}

TEST_CASE("devices are separate, and streams get small numbers, whatever theirs are") {
  run::Events events;
  for (ObjectId i = 0; i < 6; ++i) {
    Event event;
    event.kind = EventKind::kAllocate;
    event.object = i;
    event.size = 100;
    event.device = i % 2 == 0 ? 7 : 3;
    event.stream = i < 4 ? ~StreamId{0} : 12;
    events.add(event);
  }
  CHECK(devices_of(events.all()) == std::vector<std::uint16_t>{3, 7});
  const Workload workload(events.all(), 7);
  CHECK(workload.objects().size() == 3);
  CHECK(workload.streams() == 2);
  CHECK(workload.objects()[0].stream == 0);
  CHECK(workload.objects()[2].stream == 1);
  CHECK(Workload(events.all(), 5).objects().empty());
}

TEST_CASE("a workload refuses events that cannot follow each other, by their record") {
  run::Events twice, freed_twice;
  twice.allocate(1, 5).free(1).allocate(1, 5);
  CHECK_THROWS_WITH_AS(Workload(twice.all()), doctest::Contains("event 2: object 1 is allocated twice"),
                       Error);
  freed_twice.allocate(1, 5).free(1).free(1);
  CHECK_THROWS_WITH_AS(Workload(freed_twice.all()), doctest::Contains("event 2: object 1 is freed twice"),
                       Error);
}

TEST_CASE("what a simulation counts can be done by hand") {
  // 0       1024    1536        3584
  // |  1    |  2    |   3       |      1 is freed, 4 does not fit into its place
  run::Events events;
  events.allocate(1, 1000).allocate(2, 512).allocate(3, 2048).free(1).allocate(4, 2000).free(3).free(2).free(
      4);
  const Workload workload(events.all());
  const Simulation result = simulate(workload, kSpan, {.timed = false});
  CHECK(result.completed);
  CHECK(result.operations == 8);
  CHECK(result.failed == 0);
  CHECK(result.peak_live == 4560);
  CHECK(result.peak_live == workload.peak_live());
  CHECK(result.peak_reserved == 5632);  // 1000 + 512 + 2048 + 2000, in granules of 512
  CHECK(result.peak_reserved_event == 4);
  CHECK(result.live_at_peak == 4560);
  CHECK(result.fragmentation_at_peak == doctest::Approx(1 - 4560.0 / 5632));
  CHECK(result.largest_gap == 5632);  // after the last free
  CHECK(result.largest_gap_event == 7);
  CHECK_FALSE(result.oom);
  REQUIRE(result.timeline.size() == 8);
  CHECK(result.timeline[4].live == 4560);
  CHECK(result.timeline[4].reserved == 5632);
}

TEST_CASE("running out of memory says where, and whether any layout had room") {
  run::Events events;
  events.allocate(1, 4096).allocate(2, 4096).free(1).allocate(3, 5120).free(2).allocate(4, 512);
  const Workload workload(events.all());

  // 8 KiB: 4096 live, 4096 free in the wrong place, 5120 asked: no layout has room either.
  Simulation result = simulate(workload, kSpan, {.cap = 8192, .timed = false});
  CHECK_FALSE(result.completed);
  REQUIRE(result.oom);
  CHECK(result.oom->event == 3);
  CHECK(result.oom->object == 3);
  CHECK(result.oom->asked == 5120);
  CHECK(result.oom->live == 4096);
  CHECK_FALSE(result.oom->any_layout_fits(8192));
  CHECK(result.operations == 3);
  CHECK(result.failed == 1);

  // 9.5 KiB would do for a layout; best fit still takes it, since a trim frees what lies in the wrong place.
  result = simulate(workload, kSpan, {.cap = 9728, .timed = false});
  CHECK(result.completed);

  // Going on: the object that failed is left out, and its free is none.
  result = simulate(workload, kSpan, {.cap = 8192, .stop_at_oom = false, .timed = false});
  CHECK_FALSE(result.completed);
  CHECK(result.operations == 5);
  CHECK(result.failed == 1);
  CHECK(result.oom->event == 3);
}

TEST_CASE("fragmented memory at an out-of-memory: free, and of no use") {
  // Two granules of 2 MiB, each half free, and a request of 2 MiB: mapping is what stands in the way.
  run::Events events;
  events.allocate(1, kMiB).allocate(2, kMiB).allocate(3, kMiB).allocate(4, kMiB).free(1).free(3);
  events.allocate(5, 2 * kMiB);
  const Workload workload(events.all());
  const Simulation result = simulate(workload, "span", {.cap = 4 * kMiB, .timed = false});
  REQUIRE(result.oom);
  CHECK(result.oom->live == 2 * kMiB);
  CHECK(result.oom->reserved == 4 * kMiB);
  CHECK(result.oom->fragmented() == 2 * kMiB);
  CHECK(result.oom->any_layout_fits(result.cap));
}

TEST_CASE("a cap under the largest request is an error, not an answer") {
  const Workload workload(run::Events().allocate(1, 5000).all());
  CHECK_THROWS_WITH_AS(simulate(workload, kSpan, {.cap = 4999}), doctest::Contains("largest request, 5000"),
                       Error);
}

TEST_CASE("the timeline is bounded and keeps every extreme") {
  const run::Events events = random_events(3, 20'000);
  const Workload workload(events.all());
  for (const std::uint32_t samples : {1u, 7u, 1000u}) {
    const Simulation result = simulate(workload, "span", {.samples = samples, .timed = false});
    CHECK(result.timeline.size() <= samples);
    Size live = 0, reserved = 0, gap = 0;
    for (const Sample& sample : result.timeline) {
      live = std::max(live, sample.live);
      reserved = std::max(reserved, sample.reserved);
      gap = std::max(gap, sample.gap);
    }
    CHECK(live == result.peak_live);
    CHECK(reserved == result.peak_reserved);
    CHECK(gap == result.largest_gap);
  }
}

TEST_CASE("every policy completes random workloads with all memory, and the offline plan is the smallest") {
  for (unsigned seed = 0; seed < 3; ++seed) {
    const run::Events events = random_events(seed, rounds(2'000));
    const Workload workload(events.all());
    for (const PolicyInfo& info : policies(Substrate::kSimulation)) {
      CAPTURE(info.name);
      const Simulation result = simulate(workload, info.name);
      CHECK(result.completed);
      CHECK(result.peak_live == workload.peak_live());
      CHECK(result.peak_reserved >= workload.peak_live());
      CHECK(result.operations == workload.operations());
      CHECK(result.times.operations >= workload.operations());
      CHECK(result.times.mean > 0);
      CHECK(result.times.p99_9 >= result.times.p50);
      const Simulation again = simulate(workload, info.name, {.timed = false});
      CHECK(again.peak_reserved == result.peak_reserved);
      CHECK(again.calls == result.calls);
    }
  }
}

TEST_CASE("the smallest cap completes, one step below fails, and no cap is below the peak") {
  const run::Events events = random_events(11, 3'000);
  const Workload workload(events.all());
  for (const PolicyInfo& info : policies(Substrate::kSimulation)) {
    CAPTURE(info.name);
    const CapSearch search = find_cap(workload, info.name);
    REQUIRE(search.cap != 0);
    CHECK(search.cap >= workload.peak_live());
    CHECK(simulate(workload, info.name, {.cap = search.cap, .timed = false}).completed);
    for (const CapTrial& trial : search.trials) {
      if (trial.completed) CHECK(trial.cap >= search.cap);
    }
    if (search.cap == workload.peak_live()) continue;
    const bool near = std::any_of(search.trials.begin(), search.trials.end(), [&](const CapTrial& trial) {
      return !trial.completed && trial.cap < search.cap && search.cap - trial.cap <= search.resolution;
    });
    CHECK(near);
  }
}

}  // namespace memoir
