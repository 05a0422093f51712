// SPDX-License-Identifier: Apache-2.0
//
// A run that follows the plan of another: as long as it does the same, and when it does not.
#include <map>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/policy/guided_run_heap.h"
#include "memoir/simulate/memory/stream_clock.h"
#include "memoir/simulate/plan_run.h"

namespace memoir {

namespace {

struct Step {
  Size size;  // 0: a free
  size_t object;
};

/// Rounds that are all alike, in which everything dies.
std::vector<Step> loop(unsigned seed, int rounds, int steps) {
  std::vector<Step> all;
  size_t next = 0;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed);
    std::vector<size_t> live;
    for (int i = 0; i < steps; ++i) {
      if (live.empty() || random() % 100 < 55) {
        all.push_back({512 * (1 + random() % 9000), next});
        live.push_back(next++);
      } else {
        std::swap(live[random() % live.size()], live.back());
        all.push_back({0, live.back()});
        live.pop_back();
      }
    }
    for (const size_t object : live) all.push_back({0, object});
  }
  return all;
}

Workload workload_of(const std::vector<Step>& steps, SiteId site = kNoSite) {
  std::vector<Event> events;
  for (const Step& step : steps) {
    Event event;
    event.kind = step.size == 0 ? EventKind::kFree : EventKind::kAllocate;
    event.object = step.object + 1;
    event.size = step.size;
    event.site = site;
    event.time = events.size();
    events.push_back(event);
  }
  return Workload(events);
}

/// Runs it, proving that no two live objects overlap.
void run(Heap& heap, const std::vector<Step>& steps, SiteId site = kNoSite) {
  std::map<Offset, Size> live;
  std::map<size_t, Offset> places;
  for (const Step& step : steps) {
    if (step.size == 0) {
      REQUIRE(heap.free(places.at(step.object)));
      live.erase(places.at(step.object));
      continue;
    }
    const Offset offset = heap.allocate({.size = step.size, .alignment = 256, .site = site});
    REQUIRE(offset != kNoOffset);
    const auto after = live.lower_bound(offset);
    REQUIRE((after == live.end() || offset + step.size <= after->first));
    REQUIRE((after == live.begin() || std::prev(after)->first + std::prev(after)->second <= offset));
    live[offset] = step.size;
    places[step.object] = offset;
  }
}

}  // namespace

TEST_CASE("the same program is served by its plan alone, again and again") {
  const std::vector<Step> steps = loop(1, 1, 400);
  const RecordedPlan plan = plan_workload(workload_of(steps), 512);
  SimArena arena(64 * plan.arena_size, {.granule = 2 * kMiB});
  StreamClock clock;
  GuidedRunHeap heap(plan, arena, {}, &clock);
  REQUIRE(heap.ok());
  for (int pass = 0; pass < 3; ++pass) run(heap, steps);
  CHECK(heap.follows());
  CHECK(heap.counters().planned == 3 * plan.sequence.size());
  CHECK(heap.counters().departed == 0);
  CHECK(arena.peak_committed() == align_up(plan.arena_size, 2 * kMiB));
}

TEST_CASE("another program loses the plan, and its loops are planned instead") {
  const RecordedPlan plan = plan_workload(workload_of(loop(1, 1, 400)), 512);
  SimArena arena(Size{16} << 30, {.granule = 2 * kMiB});
  StreamClock clock;
  DevicePoolOptions options;
  options.patience = 1000;  // it moves memory rather than grow: there is something to learn
  GuidedRunHeap heap(plan, arena, options, &clock);
  run(heap, loop(7, 8, 300));
  CHECK_FALSE(heap.follows());
  CHECK(heap.counters().departed > 32);
  CHECK(heap.counters().dropped >= 1);
  CHECK(heap.counters().plans >= 1);
  CHECK(heap.counters().planned > 100);
  CHECK(heap.live() == 0);
}

TEST_CASE("one that makes a few more objects keeps the plan") {
  const std::vector<Step> steps = loop(1, 1, 400);
  const RecordedPlan plan = plan_workload(workload_of(steps), 512);
  SimArena arena(64 * plan.arena_size, {.granule = 2 * kMiB});
  StreamClock clock;
  GuidedRunHeap heap(plan, arena, {}, &clock);
  std::vector<Step> more;
  for (size_t i = 0; i < steps.size(); ++i) {
    more.push_back(steps[i]);
    if (i % 60 != 7) continue;
    more.push_back({512 * (70'000 + i), 10'000 + i});  // of a size that the plan does not have
    more.push_back({0, 10'000 + i});
  }
  run(heap, more);
  CHECK(heap.follows());
  CHECK(heap.counters().planned > plan.sequence.size() * 9 / 10);
}

TEST_CASE("sites are looked at where the plan has some") {
  const std::vector<Step> steps = loop(1, 1, 200);
  for (const bool recorded : {false, true}) {
    const RecordedPlan plan = plan_workload(workload_of(steps, recorded ? 5 : kNoSite), 512);
    for (const SiteId site : {kNoSite, SiteId{5}, SiteId{6}}) {
      SimArena arena(64 * plan.arena_size, {.granule = 2 * kMiB});
      StreamClock clock;
      GuidedRunHeap heap(plan, arena, {}, &clock);
      run(heap, steps, site);
      CAPTURE(recorded);
      CAPTURE(site);
      CHECK(heap.follows() == !(recorded && site == 6));
    }
  }
}

TEST_CASE("an empty plan is none, and one that has no room cannot be") {
  SimArena arena(64 * kMiB, {.granule = 2 * kMiB});
  GuidedRunHeap none(RecordedPlan{}, arena);
  CHECK(none.ok());
  CHECK_FALSE(none.follows());
  run(none, loop(3, 1, 50));
  SimArena small(2 * kMiB, {.granule = 2 * kMiB});
  CHECK_FALSE(GuidedRunHeap(plan_workload(workload_of(loop(1, 1, 400)), 512), small).ok());
}

}  // namespace memoir
