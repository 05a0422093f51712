// SPDX-License-Identifier: Apache-2.0
//
// Private pools (CUDA graphs, MemPools): in workloads, in PyTorch's heaps next to a checker that knows whose
// every segment is, and under every policy of the simulator.
#include <map>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/base/error.h"
#include "memoir/heap/peers/pytorch/expandable_heap.h"
#include "memoir/heap/peers/pytorch/pytorch_heap.h"
#include "memoir/simulate/private_pool_heap.h"
#include "memoir/simulate/restored_state.h"
#include "memoir/simulate/simulation.h"

namespace memoir {

namespace {

constexpr Offset kBase = 0x7f0000000000;

/// Events of a recording with pools.
class Story {
 public:
  Story& allocate(ObjectId object, Size size, std::uint32_t pool, Offset address = kBase) {
    add({.kind = EventKind::kAllocate, .object = object, .size = size});
    return add({.kind = EventKind::kAddress, .thread = pool, .object = object, .size = address});
  }
  Story& free(ObjectId object) { return add({.kind = EventKind::kFree, .object = object}); }
  Story& segment(EventKind kind, Offset address, Size size, std::uint32_t pool) {
    return add({.kind = kind, .thread = pool, .object = address, .size = size});
  }
  Story& begin() {
    time_ = 1;
    return *this;
  }
  Workload workload() const { return Workload(events_); }

 private:
  Story& add(Event event) {
    event.time = time_;
    events_.push_back(event);
    return *this;
  }
  std::vector<Event> events_;
  Tick time_ = 0;
};

/// A program that captures graphs now and then: objects of pools 1 and 2 come in bursts.
Story random_story(unsigned seed, int steps) {
  std::mt19937_64 random(seed);
  Story story;
  story.begin();
  std::vector<ObjectId> live;
  ObjectId next = 1;
  std::uint32_t pool = 0;
  for (int i = 0; i < steps; ++i) {
    if (random() % 20 == 0) pool = random() % 3;
    if (live.empty() || (random() % 100 < 55 && live.size() < 80)) {
      const Size size = 1 + random() % (random() % 4 == 0 ? 12 * kMiB : 256 * kKiB);
      story.allocate(next, size, 7 * pool);  // numbers of the trace need not be those of the workload
      live.push_back(next++);
    } else {
      std::swap(live[random() % live.size()], live.back());
      story.free(live.back());
      live.pop_back();
    }
  }
  return story;
}

/// Whose memory everything is: what the device gives during a pool's request is that pool's until it goes
/// back.
class Owners {
 public:
  std::uint32_t asking = 0;  // the pool
  int given_back = 0;        // of private pools

  void taken(Range range) {
    CHECK(owner(range.begin) == kNobody);
    ranges_[range.begin] = {range.end(), asking};
  }
  void gone(Range range) {
    if (owner(range.begin) != 0) ++given_back;
    const auto at = std::prev(ranges_.upper_bound(range.begin));
    const auto [begin, whole] = *at;
    ranges_.erase(at);
    if (begin < range.begin) ranges_[begin] = {range.begin, whole.pool};
    if (range.end() < whole.end) ranges_[range.end()] = {whole.end, whole.pool};
  }
  static constexpr std::uint32_t kNobody = ~0u;
  std::uint32_t owner(Offset offset) const {
    const auto after = ranges_.upper_bound(offset);
    if (after == ranges_.begin() || std::prev(after)->second.end <= offset) return kNobody;
    return std::prev(after)->second.pool;
  }

 private:
  struct Part {
    Offset end;
    std::uint32_t pool;
  };
  std::map<Offset, Part> ranges_;
};

class WatchedSegments final : public Segments {
 public:
  WatchedSegments(Owners& owners, Size cap) : owners_(owners), segments_(cap) {}
  Offset take(Size size) noexcept override {
    const Offset begin = segments_.take(size);
    if (begin != kNoOffset) owners_.taken({begin, size});
    return begin;
  }
  void give_back(Range segment) noexcept override {
    owners_.gone(segment);
    segments_.give_back(segment);
  }
  Size held() const noexcept override { return segments_.held(); }

 private:
  Owners& owners_;
  SimSegments segments_;
};

class WatchedArena final : public Arena {
 public:
  WatchedArena(Owners& owners, Size cap) : owners_(owners), arena_(64 * kGiB, {2 * kMiB, cap}) {}
  Size capacity() const noexcept override { return arena_.capacity(); }
  Size granule() const noexcept override { return arena_.granule(); }
  bool commit(Range range) noexcept override {
    if (!arena_.commit(range)) return false;
    owners_.taken(range);
    return true;
  }
  void decommit(Range range) noexcept override {
    for (Offset at = range.begin; at < range.end(); at += granule()) owners_.gone({at, granule()});
    arena_.decommit(range);
  }
  Size committed() const noexcept override { return arena_.committed(); }

 private:
  Owners& owners_;
  SimArena arena_;
};

void walk(PyTorchPools& heap, Owners& owners, Size cap, unsigned seed, bool gives_oversize) {
  constexpr std::uint32_t kPools = 4;
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<PrivatePoolHeap>> pools;
  for (std::uint32_t pool = 1; pool < kPools; ++pool) {
    REQUIRE(heap.add_pool_use(pool));
    pools.push_back(std::make_unique<PrivatePoolHeap>(heap, pool));
  }
  const auto of = [&](std::uint32_t pool) -> Heap& {
    return pool == 0 ? static_cast<Heap&>(heap) : *pools[pool - 1];
  };
  struct Object {
    Offset offset;
    std::uint32_t pool;
  };
  std::vector<Object> live;
  int refused = 0, placed[kPools] = {};
  for (int i = 0; i < 4000; ++i) {
    const auto dice = random() % 1000;
    if (dice < 5) {
      heap.trim();
    } else if (live.empty() || dice < (i / 500 % 2 == 0 ? 600 : 400)) {
      owners.asking = random() % kPools;
      const Size size = 1 + random() % (random() % 3 == 0 ? 15 * kMiB : 300 * kKiB);
      const Offset offset =
          of(owners.asking).allocate({size, 1, kNoSite, static_cast<StreamId>(random() % 2)});
      if (offset == kNoOffset) {
        ++refused;
        continue;
      }
      ++placed[owners.asking];
      REQUIRE(owners.owner(offset) == owners.asking);
      REQUIRE(owners.owner(offset + size - 1) == owners.asking);
      live.push_back({offset, owners.asking});
    } else {
      std::swap(live[random() % live.size()], live.back());
      REQUIRE(of(live.back().pool).free(live.back().offset));
      live.pop_back();
    }
    if (i % 100 != 0) continue;
    Size reserved = 0, of_private = 0;
    heap.for_each_block([&](const BlockView& block) {
      if (!block.mapped) return;
      if (owners.owner(block.range.begin) != block.pool) FAIL("a block of another pool");
      reserved += block.range.size;
      of_private += block.pool == 0 ? 0 : block.range.size;
    });
    REQUIRE(reserved == heap.reserved());
    REQUIRE(of_private == heap.private_reserved());
  }
  // All of them are used to the end; PyTorch gives back their oversize blocks all the same, for a request to
  // the pool.
  if (!gives_oversize) CHECK(owners.given_back == 0);
  CHECK((refused > 0) == (cap != kNoCap));
  for (const int count : placed) CHECK(count > 100);
  while (!live.empty()) {
    CHECK(of(live.back().pool).free(live.back().offset));
    live.pop_back();
  }
  heap.trim();
  CHECK(heap.reserved() == heap.private_reserved());
  CHECK(heap.private_reserved() > 0);
  for (std::uint32_t pool = 1; pool < kPools; ++pool) CHECK(heap.release_pool(pool));
  heap.trim();
  CHECK(heap.reserved() == 0);
  CHECK(owners.given_back > 0);
}

}  // namespace

TEST_CASE("in PyTorch's heaps no block changes its pool, and no private one goes back while it is used") {
  for (const char* const text : {"", "max_split_size_mb:20", "roundup_power2_divisions:4",
                                 "garbage_collection_threshold:0.4,per_process_memory_fraction:0.9"}) {
    for (const Size cap : {kNoCap, 300 * kMiB}) {
      for (unsigned seed = 0; seed < 3; ++seed) {
        CAPTURE(text);
        CAPTURE(cap);
        CAPTURE(seed);
        PyTorchOptions options = PyTorchOptions::parse(text);
        options.device_memory = cap == kNoCap ? 2 * kGiB : cap;
        {
          Owners owners;
          WatchedSegments segments(owners, cap);
          PyTorchHeap heap(segments, options);
          walk(heap, owners, cap, seed, options.max_split_size != PyTorchOptions::kNoLimit);
        }
        {
          Owners owners;
          WatchedArena arena(owners, cap);
          ExpandableHeap heap(arena, options);
          walk(heap, owners, cap, seed, false);
        }
      }
    }
  }
}

TEST_CASE("a workload distinguishes the pools") {
  const Workload workload = random_story(1, 3000).workload();
  REQUIRE(workload.pools() == 3);
  const std::vector<Workload> parts = workload.by_pool();
  REQUIRE(parts.size() == 3);
  size_t objects = 0, steps = 0;
  for (std::uint32_t pool = 0; pool < 3; ++pool) {
    const Workload& part = parts[pool];
    objects += part.objects().size();
    steps += part.steps().size();
    CHECK(part.pools() == 1);
    CHECK(load(part.problem()) == part.peak_live());
    for (const Workload::Object& object : part.objects()) CHECK(object.pool == pool);
  }
  CHECK(objects == workload.objects().size());
  CHECK(steps == workload.steps().size());

  Story many;
  for (std::uint32_t pool = 1; pool <= Workload::kMostPools; ++pool) many.allocate(pool, 512, pool);
  CHECK_THROWS_WITH_AS(many.workload(), "event 8191: a trace with more than 4096 pools is not simulated",
                       Error);
}

TEST_CASE("what is free in one pool serves no other, whatever the policy") {
  const Workload separate =
      Story().begin().allocate(1, 40 * kMiB, 0).free(1).allocate(2, 40 * kMiB, 3).free(2).workload();
  const Workload alike =
      Story().begin().allocate(1, 40 * kMiB, 0).free(1).allocate(2, 40 * kMiB, 0).free(2).workload();
  for (const PolicyInfo& policy : policies(Substrate::kSimulation)) {
    CAPTURE(policy.name);
    const Simulation one = simulate(alike, policy.name, {.timed = false});
    const Simulation two = simulate(separate, policy.name, {.timed = false});
    // At every free; so do mallocs for hosts, with objects as large as these.
    const bool gives_back = policy.name == "direct" || policy.traits.page != 0;
    CHECK(one.private_reserved == 0);
    CHECK(two.private_reserved >= 40 * kMiB);  // although nothing is live
    CHECK(two.peak_reserved >= (gives_back ? 1 : 2) * one.peak_reserved);
  }
}

TEST_CASE("all pools share the device") {
  const Workload workload = random_story(2, 4000).workload();
  for (const PolicyInfo& info : policies(Substrate::kSimulation)) {
    const std::string& policy = info.name;
    CAPTURE(policy);
    const Simulation free = simulate(workload, policy, {.timed = true});
    CHECK(free.completed);
    CHECK(free.private_reserved > 0);
    CHECK(free.private_reserved < free.peak_reserved);
    CHECK(free.times.operations > 0);
    const Simulation enough = simulate(workload, policy, {.cap = free.peak_reserved, .timed = false});
    CHECK(enough.completed);
    const Size cap = free.private_reserved;  // nothing is left for the others
    const Simulation little = simulate(workload, policy, {.cap = cap, .stop_at_oom = false, .timed = false});
    CHECK_FALSE(little.completed);
    CHECK(little.peak_reserved <= cap);
  }

  // 60 MiB are cached by the default pool when a graph wants 60 MiB: on a GPU the runtime trims, and so it
  // does here.
  const Workload full =
      Story().begin().allocate(1, 60 * kMiB, 0).free(1).allocate(2, 60 * kMiB, 1).workload();
  for (const char* const policy : {"memoir", "span", "split"}) {
    CAPTURE(policy);
    CHECK(simulate(full, policy, {.cap = 100 * kMiB, .timed = false}).completed);
  }
  // PyTorch gives nothing back while it captures.
  CHECK_FALSE(simulate(full, "pytorch", {.cap = 100 * kMiB, .timed = false}).completed);
}

TEST_CASE("a recorded state has its pools") {
  const auto take = EventKind::kSegmentAllocate;
  Story story;
  story.segment(take, kBase, 20 * kMiB, 0).segment(take, kBase + 64 * kMiB, 20 * kMiB, 5);
  story.allocate(1, 2 * kMiB, 0).allocate(2, 2 * kMiB, 5, kBase + 64 * kMiB);
  story.begin();
  story.allocate(3, 3 * kMiB, 5, kBase + 66 * kMiB).allocate(4, 3 * kMiB, 0, kBase + 2 * kMiB);
  const Simulation result = simulate(story.workload(), "pytorch", {.timed = false, .recorded = "pytorch"});
  REQUIRE(result.fidelity);
  CHECK(result.fidelity->agreed == 2);
  CHECK(result.private_reserved == 20 * kMiB);
  CHECK(result.calls.all() == 0);

  SUBCASE("an object lies in a segment of its own pool") {
    Story odd;
    odd.segment(take, kBase, 20 * kMiB, 0).allocate(1, 512, 5);
    CHECK_THROWS_WITH_AS(
        restored_state(odd.workload(), "pytorch"),
        doctest::Contains("event 1: object 1 of 512 bytes at 0x7f0000000000 lies in a segment of "
                          "another pool"),
        Error);
  }
  SUBCASE("a pool that gave something back had ended") {
    story.free(2)
        .free(3)
        .segment(EventKind::kSegmentFree, kBase + 64 * kMiB, 20 * kMiB, 5)
        .allocate(5, 512, 0);
    const Simulation later = simulate(story.workload(), "pytorch", {.timed = false, .recorded = "pytorch"});
    CHECK(later.private_reserved == 0);
    CHECK(later.fidelity->recorded_calls == 1);
    CHECK(later.calls.give_backs == 1);
  }
  SUBCASE("areas of one stream and two pools are two") {
    Story mapped;
    const auto map = EventKind::kSegmentMap;
    mapped.segment(map, kBase, 20 * kMiB, 0).segment(map, kBase + 20 * kMiB, 20 * kMiB, 5);
    mapped.allocate(1, 2 * kMiB, 0).allocate(2, 2 * kMiB, 5, kBase + 20 * kMiB);
    const RestoredState start = restored_state(mapped.workload(), "expandable");
    REQUIRE(start.areas.size() == 2);
    CHECK(start.areas[0].pool == 0);
    CHECK(start.areas[1].pool == 1);
    mapped.begin();
    mapped.allocate(3, 4 * kMiB, 5, kBase + 22 * kMiB);
    const Simulation run =
        simulate(mapped.workload(), "expandable", {.timed = false, .recorded = "expandable"});
    CHECK(run.fidelity->agreed == 1);
    CHECK(run.private_reserved == 20 * kMiB);
  }
}

}  // namespace memoir
