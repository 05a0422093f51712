// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "contract/faulty_heap.h"
#include "contract/live_ranges.h"
#include "contract/soak_walk.h"
#include "contract/subjects.h"
#include "doctest/doctest.h"

namespace memoir::contract {

TEST_CASE("live ranges: what overlaps by a byte is found, what touches is not") {
  LiveRanges live;
  CHECK(live.insert({100, 50}, 1));
  CHECK(live.insert({150, 1}, 2));
  CHECK(live.insert({99, 1}, 3));
  CHECK(live.size() == 3);
  for (const Range range : {Range{149, 1}, Range{100, 50}, Range{90, 10}, Range{0, 1000}, Range{150, 9},
                            Range{120, 2}, Range{98, 2}}) {
    CAPTURE(range.begin);
    CHECK_FALSE(live.insert(range, 4));
  }
  CHECK(live.size() == 3);
  CHECK(live.begins_at(150));
  CHECK_FALSE(live.begins_at(149));
  live.erase(live.find(100));
  CHECK(live.insert({149, 1}, 5));
  CHECK(live[live.find(101)].range == Range{149, 1});
}

TEST_CASE("long walks of every heap on every arena") {
  for (const Subject& subject : subjects()) {
    for (const ArenaKind& kind : soaked_arenas()) {
      CAPTURE(subject.name);
      CAPTURE(kind.name);
      const std::unique_ptr<Arena> arena = kind.make(kArenaSize);
      const SoakResult result = soak_walk(3, 5000, [&](Arena& a) { return subject.make(a, menu_plan()); },
                                          *arena, {.traits = subject.traits, .memory = kind.memory(*arena)});
      CHECK(result.failure == "");
      CHECK(result.operations == 5000);
      CHECK(result.allocations > 500);  // or the walk proves nothing
    }
  }
}

TEST_CASE("long walks find the faults that they are there for") {
  for (const Fault fault :
       {Fault::kOverlap, Fault::kMisaligned, Fault::kDoubleFree, Fault::kRefuses, Fault::kUncommitted,
        Fault::kForgets, Fault::kTrimsLive, Fault::kCounts, Fault::kLeaks}) {
    CAPTURE(static_cast<int>(fault));
    SimArena arena(kArenaSize);
    const SoakResult result =
        soak_walk(1, 100'000, [&](Arena& a) { return std::make_unique<FaultyHeap>(a, fault); }, arena, {});
    CHECK(result.failure != "");
    CHECK(result.operations < 100'000);
  }
}

namespace {

/// Writes a byte into the memory that it manages, now and then, somewhere in the middle of what it hands out.
class ScribblingHeap final : public Heap {
 public:
  ScribblingHeap(Arena& arena, std::byte* memory) : memory_(memory), inner_(arena) {}
  Offset allocate(const Request& request) noexcept override {
    if (last_ != kNoOffset && inner_.size_of(last_) > 8 * kKiB && ++large_ % 16 == 0) {
      std::memset(memory_ + last_ + 4 * kKiB, 0, 4 * kKiB);
    }
    return last_ = inner_.allocate(request);
  }
  bool free(Offset offset) noexcept override { return inner_.free(offset); }
  Size size_of(Offset offset) const noexcept override { return inner_.size_of(offset); }
  Size live() const noexcept override { return inner_.live(); }
  void trim() noexcept override { inner_.trim(); }

 private:
  std::byte* memory_;
  SpanHeap inner_;
  Offset last_ = kNoOffset;
  int large_ = 0;
};

}  // namespace

TEST_CASE("long walks find a heap that writes a page of its memory") {
  HostArena arena(kArenaSize);
  const SoakResult result =
      soak_walk(1, 50'000, [&](Arena& a) { return std::make_unique<ScribblingHeap>(a, arena.base()); }, arena,
                {.memory = arena.base()});
  CHECK(result.failure.starts_with("changed the contents of an object at "));
}

}  // namespace memoir::contract
