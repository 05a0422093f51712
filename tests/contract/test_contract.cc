// SPDX-License-Identifier: Apache-2.0
//
// What every heap must do on every arena (heap/heap.h, arena/arena.h).
#include "contract/faulty_heap.h"
#include "contract/subjects.h"
#include "contract/walk.h"
#include "doctest/doctest.h"
#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/trace/read/trace.h"
#include "support/replay.h"
#include "support/rounds.h"

namespace memoir::contract {

namespace {

/// Calls `body(subject, kind, arena)` for every heap on every arena.
template <class Body>
void for_each_pair(Body body) {
  for (const Subject& subject : subjects()) {
    for (const ArenaKind& kind : arenas()) {
      CAPTURE(subject.name);
      CAPTURE(kind.name);
      const std::unique_ptr<Arena> arena = kind.make(kArenaSize);
      REQUIRE(arena->capacity() == kArenaSize);
      body(subject, kind, *arena);
    }
  }
}

WalkOptions options(const Subject& subject, const ArenaKind& kind, Arena& arena) {
  return {.traits = subject.traits, .memory = kind.memory(arena)};
}

MakeHeap on_the_menu(const Subject& subject) {
  return [&subject](Arena& arena) { return subject.make(arena, menu_plan()); };
}

/// Why a walk fails, with the shortest walk that does, as C++; empty when it does not.
std::string report(const std::vector<Step>& steps, const Subject& subject, const ArenaKind& kind) {
  const auto outcome = [&](const std::vector<Step>& some) {
    const std::unique_ptr<Arena> arena = kind.make(kArenaSize);
    return walk(some, on_the_menu(subject), *arena, options(subject, kind, *arena));
  };
  if (outcome(steps).failure.empty()) return "";
  const auto least = shortened(steps, [&](const auto& some) { return !outcome(some).failure.empty(); });
  const Outcome last = outcome(least);
  return subject.name + " on " + kind.name + ": step " + std::to_string(last.failed_at) + ": " +
         last.failure + "\n" + as_code(least);
}

}  // namespace

TEST_CASE("an empty heap holds nothing and refuses what cannot be") {
  for_each_pair([](const Subject& subject, const ArenaKind&, Arena& arena) {
    const auto heap = subject.make(arena, menu_plan());
    CHECK(heap->live() == 0);
    for (const Offset offset : {Offset{0}, Offset{1}, kArenaSize, kNoOffset}) {
      CHECK_FALSE(heap->free(offset));
      CHECK(heap->size_of(offset) == 0);
    }
    for (const Request& request : {Request{0, 64}, Request{64, 0}, Request{64, 3}, Request{kArenaSize + 1, 1},
                                   Request{~Size{0}, 1}, Request{~Size{0}, Size{1} << 63}}) {
      CHECK(heap->allocate(request) == kNoOffset);
    }
    heap->trim();
    CHECK(heap->live() == 0);
  });
}

TEST_CASE("exhaustion is an answer, and over as soon as something is freed") {
  for_each_pair([](const Subject& subject, const ArenaKind&, Arena& arena) {
    if (!subject.traits.serves_all) return;
    const bool gives_back = subject.traits.gives_back;
    const auto heap = subject.make(arena, menu_plan());
    const Size size = kArenaSize / 64;
    for (Offset i = 0; i < 64; ++i) REQUIRE(heap->allocate({size, 64}) == i * size);
    CHECK(heap->allocate({1, 1}) == kNoOffset);
    CHECK(arena.committed() == kArenaSize);
    CHECK(heap->free(7 * size));
    CHECK(heap->allocate({size + 1, 1}) == kNoOffset);
    CHECK(heap->allocate({size, 64}) == 7 * size);
    CHECK(heap->allocate({1, 1}) == kNoOffset);
    for (Offset i = 0; i < 64; i += 2) REQUIRE(heap->free(i * size));
    heap->trim();
    CHECK(arena.committed() == (gives_back ? kArenaSize / 2 : kArenaSize));
    for (Offset i = 1; i < 64; i += 2) REQUIRE(heap->free(i * size));
    CHECK(heap->live() == 0);
    CHECK(heap->allocate({kArenaSize, 1}) == 0);
    CHECK(heap->free(0));
    heap->trim();
    CHECK(arena.committed() == (gives_back ? 0 : kArenaSize));
  });
}

TEST_CASE("a full arena is refilled to the last byte, whatever was live before") {
  for_each_pair([](const Subject& subject, const ArenaKind&, Arena& arena) {
    if (!subject.traits.fills) return;
    const auto heap = subject.make(arena, menu_plan());
    for (const Size size : {kArenaSize / 64, kArenaSize / 16, kArenaSize / 64}) {
      std::vector<Offset> offsets;
      for (Offset offset; (offset = heap->allocate({size, 64})) != kNoOffset;) offsets.push_back(offset);
      CHECK(offsets.size() == kArenaSize / size);
      CHECK(heap->live() == kArenaSize);
      CHECK(heap->free(offsets[7]));
      CHECK(heap->allocate({size, 64}) == offsets[7]);
      for (const Offset offset : offsets) CHECK(heap->free(offset));
      heap->trim();
      CHECK(heap->live() == 0);
      if (subject.traits.gives_back) CHECK(arena.committed() == 0);
      if (!subject.traits.joins) return;  // the next size may not fit what it holds
    }
  });
}

TEST_CASE("random walks on a machine that is full at a quarter of the arena") {
  for (const Subject& subject : subjects()) {
    if (subject.traits.secures) continue;  // has its memory at the start or not at all
    for (unsigned seed = 100; seed < 100 + rounds(10u); ++seed) {
      CAPTURE(subject.name);
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      const std::vector<Step> steps = random_steps(random, 1500, kArenaSize);
      SimArena arena(kArenaSize, {.limit = kArenaSize / 4});
      WalkOptions capped{.traits = subject.traits};
      capped.traits.serves_all = capped.traits.joins = false;
      const Outcome outcome = walk(steps, on_the_menu(subject), arena, capped);
      CHECK(outcome.failure == "");
      size_t served = 0;
      for (const Offset offset : outcome.offsets) served += offset != kNoOffset;
      CHECK(served > subject.traits.serves);
      CHECK(served < outcome.offsets.size());
      CHECK(arena.peak_committed() <= kArenaSize / 4);
    }
  }
}

TEST_CASE("random walks next to a slow oracle; the offsets are the same on every arena") {
  for (const Subject& subject : subjects()) {
    for (unsigned seed = 0; seed < rounds(10u); ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      const std::vector<Step> steps = random_steps(random, 1500, kArenaSize);
      std::vector<Offset> first;
      size_t served = 0;
      for (const ArenaKind& kind : arenas()) {
        const std::unique_ptr<Arena> arena = kind.make(kArenaSize);
        const Outcome outcome = walk(steps, on_the_menu(subject), *arena, options(subject, kind, *arena));
        if (!outcome.failure.empty()) FAIL(report(steps, subject, kind));
        if (first.empty()) first = outcome.offsets;
        CHECK(outcome.offsets == first);
        for (const Offset offset : outcome.offsets) served += offset != kNoOffset;
      }
      CHECK(served > 300);  // or the walk proves nothing
      if (subject.traits.serves_all) CHECK(served < arenas().size() * first.size());
    }
  }
}

namespace {

/// Notes the offsets that a heap hands out.
class NotingHeap final : public Heap {
 public:
  explicit NotingHeap(Heap& inner) : inner_(&inner) {}
  Offset allocate(const Request& request) noexcept override {
    offsets.push_back(inner_->allocate(request));
    return offsets.back();
  }
  bool free(Offset offset) noexcept override { return inner_->free(offset); }
  Size size_of(Offset offset) const noexcept override { return inner_->size_of(offset); }
  Size live() const noexcept override { return inner_->live(); }

  std::vector<Offset> offsets;

 private:
  Heap* inner_;
};

}  // namespace

TEST_CASE("a real network's trace gets the same offsets, and takes the same memory, on every arena") {
  const Trace trace = Trace::open(MEMOIR_TEST_DATA "/resnet18.trace");
  const RecordedPass pass = read_pass(trace);
  const RecordedPlan plan = record_plan(pass, plan_quickly(pass.problem), "quick");
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.name);
    std::vector<Offset> offsets;
    ReplayUsage usage;
    for (const ArenaKind& kind : arenas()) {
      CAPTURE(kind.name);
      const std::unique_ptr<Arena> arena = kind.make(kArenaSize);
      const auto heap = subject.make(*arena, plan);
      NotingHeap noting(*heap);
      const ReplayUsage here = replay(trace.events(), noting, *arena);
      if (offsets.empty()) {
        offsets = noting.offsets;
        usage = here;
      }
      CHECK(noting.offsets == offsets);
      CHECK(here == usage);
      CHECK(heap->live() == 0);
    }
    CHECK(offsets.size() == 214);
    CHECK(usage.served >= (subject.traits.serves_all ? usage.allocations : pass.problem.size()));
    MESSAGE(subject.name << " serves " << usage.served << " of " << usage.allocations << "; load "
                         << usage.peak_load << ", arena " << usage.peak_end << ", committed "
                         << usage.peak_committed);
  }
}

TEST_CASE("the walks find every fault that they are there for, and print a short way to it") {
  for (const Fault fault :
       {Fault::kOverlap, Fault::kMisaligned, Fault::kDoubleFree, Fault::kRefuses, Fault::kUncommitted,
        Fault::kForgets, Fault::kTrimsLive, Fault::kCounts, Fault::kLeaks}) {
    CAPTURE(static_cast<int>(fault));
    const Subject faulty{"FaultyHeap", [&](Arena& arena, const RecordedPlan&) {
                           return std::make_unique<FaultyHeap>(arena, fault);
                         }};
    std::mt19937_64 random(1);
    const std::vector<Step> steps = random_steps(random, 500, kArenaSize);
    const std::string found = report(steps, faulty, arenas()[0]);
    CHECK(found.starts_with("FaultyHeap on sim: step "));
    CHECK(found.find("const std::vector<Step> steps = {\n") != found.npos);
    CHECK(std::count(found.begin(), found.end(), '\n') < 60);
  }
}

}  // namespace memoir::contract
