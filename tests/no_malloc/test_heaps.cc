// SPDX-License-Identifier: Apache-2.0
//
// Every heap over every arena of the contract suite, which a new one joins by itself (contract/subjects.h).
#include <vector>

#include "contract/subjects.h"
#include "doctest/doctest.h"
#include "no_malloc/trap.h"

namespace memoir {

namespace {

/// Walks the heap as the contract suite does, without its oracle: what is live is all that it knows.
void walk(Heap& heap, const std::vector<contract::Step>& steps, std::vector<Offset>& placed) {
  for (const contract::Step& step : steps) {
    switch (step.kind) {
      case contract::Step::Kind::kAllocate:
        placed[step.object] = heap.allocate(step.request);
        break;
      case contract::Step::Kind::kFree:
        if (placed[step.object] == kNoOffset) break;
        heap.free(placed[step.object]);
        placed[step.object] = kNoOffset;
        break;
      case contract::Step::Kind::kWildFree:
        if (heap.size_of(step.offset) == 0) heap.free(step.offset);
        break;
      case contract::Step::Kind::kTrim:
        heap.trim();
    }
  }
  for (Offset& offset : placed) {
    if (offset != kNoOffset) heap.free(offset);
    offset = kNoOffset;
  }
  heap.trim();
}

}  // namespace

TEST_CASE("no heap calls malloc, over whatever arena") {
  const RecordedPlan plan = contract::menu_plan();
  for (const contract::ArenaKind& arena_kind : contract::arenas()) {
    for (const contract::Subject& subject : contract::subjects()) {
      const std::string name = subject.name + " over " + arena_kind.name;
      CAPTURE(name);
      const std::unique_ptr<Arena> arena = arena_kind.make(contract::kArenaSize);
      const std::unique_ptr<Heap> heap = subject.make(*arena, plan);
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        std::mt19937_64 random(seed);
        const std::vector<contract::Step> steps = contract::random_steps(random, 4000, contract::kArenaSize);
        std::vector<Offset> placed(steps.size(), kNoOffset);
        const trap::NoMalloc here;
        walk(*heap, steps, placed);
      }
      CHECK(heap->live() == 0);
    }
  }
}

TEST_CASE("no arena calls malloc") {
  for (const contract::ArenaKind& kind : contract::arenas()) {
    CAPTURE(kind.name);
    const std::unique_ptr<Arena> arena = kind.make(contract::kArenaSize);
    const Size granule = arena->granule(), granules = arena->capacity() / granule;
    std::vector<bool> committed(granules);
    std::mt19937_64 random(1);
    const trap::NoMalloc here;
    for (int i = 0; i < 3000; ++i) {
      const Size first = random() % granules;
      Size count = 1 + random() % std::min<Size>(granules - first, 16);
      const bool is_in = committed[first];
      for (Size k = 1; k < count; ++k) {
        if (committed[first + k] != is_in) count = k;
      }
      const Range range{first * granule, count * granule};
      bool done = true;
      if (is_in) {
        arena->decommit(range);
      } else {
        done = arena->commit(range);
      }
      for (Size k = 0; done && k < count; ++k) committed[first + k] = !is_in;
    }
    arena->decommit({0, arena->capacity()});
  }
}

TEST_CASE("the pool that learns: to plan calls malloc, to follow a plan does not") {
  // Rounds that repeat, until it follows: the one thing that the trap must not see is planning, which happens
  // in between, in allocate().
  SimArena arena(8 * 64 * kMiB);
  LearningHeap pool(arena);
  std::vector<Offset> round;
  round.reserve(100);
  const auto run = [&] {
    for (Size i = 0; i < 40; ++i) {
      round.push_back(pool.allocate({.size = (1 + i % 7) * kMiB + 512 * i, .alignment = 1}));
      if (i % 3 == 2) {
        pool.free(round[round.size() - 2]);
        round.erase(round.end() - 2);
      }
    }
    for (const Offset offset : round) pool.free(offset);
    round.clear();
  };
  for (int i = 0; i < 200 && !pool.follows(); ++i) run();
  REQUIRE(pool.follows());
  const auto before = pool.counters();
  {
    const trap::NoMalloc here;
    for (int i = 0; i < 50; ++i) run();
  }
  CHECK(pool.follows());
  CHECK(pool.counters().plans == before.plans);
  CHECK(pool.counters().planned > before.planned);
}

}  // namespace memoir
