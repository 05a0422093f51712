// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "heap/checked_streams.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/index/free_bins.h"
#include "memoir/heap/index/start_set.h"
#include "memoir/heap/pool/device_pool_heap.h"
#include "support/arena_segments.h"

namespace memoir {

namespace {
constexpr SimArenaOptions kDevice{.granule = 2 * kMiB};

/// Watches an arena: whoever lives must lie on committed granules.
class Granules final : public Arena {
 public:
  Granules(Size capacity, Size limit)
      : inner_(capacity, {.granule = kGranule, .limit = limit}), held_(capacity / kGranule) {}
  static constexpr Size kGranule = 64 * kKiB;

  Size capacity() const noexcept override { return inner_.capacity(); }
  Size granule() const noexcept override { return kGranule; }
  Size committed() const noexcept override { return inner_.committed(); }
  bool commit(Range range) noexcept override {
    if (!inner_.commit(range)) return false;
    for (Size i = range.begin / kGranule; i * kGranule < range.end(); ++i) held_[i] = true;
    return true;
  }
  void decommit(Range range) noexcept override {
    inner_.decommit(range);
    for (Size i = (range.begin + kGranule - 1) / kGranule; (i + 1) * kGranule <= range.end(); ++i)
      held_[i] = false;
  }
  bool holds(Range range) const {
    for (Size i = range.begin / kGranule; i * kGranule < range.end(); ++i) {
      if (!held_[i]) return false;
    }
    return true;
  }

 private:
  SimArena inner_;
  std::vector<bool> held_;
};

}  // namespace

TEST_CASE("under a cap idle memory is moved to where it is needed") {
  // 4 granules: a b c d, of which a and c are freed; a request of two granules finds no hole.
  SimArena arena(64 * kMiB, {.granule = 2 * kMiB, .limit = 8 * kMiB});
  DevicePoolHeap heap(arena);
  Offset at[4];
  for (Offset& offset : at) offset = heap.allocate({2 * kMiB});
  CHECK(heap.free(at[0]));
  CHECK(heap.free(at[2]));
  const Offset large = heap.allocate({4 * kMiB});
  CHECK(large == 8 * kMiB);
  CHECK(arena.committed() == 8 * kMiB);
  CHECK(heap.counters().moves == 1);
  CHECK(heap.counters().moved == 4 * kMiB);
  CHECK(heap.allocate({1}) == kNoOffset);
  CHECK(heap.free(large));
  CHECK(heap.allocate({1}) != kNoOffset);
}

TEST_CASE("a pool that grows maps some memory ahead, but never more than its share") {
  for (const Size size : {Size{512} * kKiB, 3 * kMiB, 11 * kMiB}) {
    SimArena arena(64 * kGiB, kDevice);
    DevicePoolHeap heap(arena);
    Size held = 0;
    const Size count = 8 * kGiB / size;
    for (Size i = 0; i < count; ++i) {
      REQUIRE(heap.allocate({size}) != kNoOffset);
      held += size;
      const Size most = held + std::min(held / 200, 20 * kMiB);
      REQUIRE(arena.committed() <= align_up(most, 2 * kMiB));
    }
    const Size growths = held / std::max<Size>(size, 2 * kMiB);
    CHECK(heap.counters().commits < growths);
    CHECK(heap.counters().decommits == 0);
  }
}

TEST_CASE("what is mapped ahead is none of a full device's memory") {
  const Size limit = 2 * kGiB;
  SimArena arena(64 * kGiB, {.granule = 2 * kMiB, .limit = limit});
  DevicePoolHeap heap(arena);
  for (Size held = 0; held < limit; held += 4 * kMiB) REQUIRE(heap.allocate({4 * kMiB}) != kNoOffset);
  CHECK(heap.live() == limit);
  CHECK(heap.counters().moves == 0);
}

TEST_CASE("after many moves small objects have granules of their own") {
  SimArena arena(64 * kGiB, kDevice);
  DevicePoolHeap heap(arena);
  std::mt19937_64 random(3);
  std::vector<Offset> large;
  const auto churn = [&](auto&& more) {
    for (int i = 0; i < 4000; ++i) {
      while (large.size() > 40) {
        std::swap(large[random() % large.size()], large.back());
        CHECK(heap.free(large.back()));
        large.pop_back();
      }
      large.push_back(heap.allocate({kMiB + random() % (40 * kMiB)}));
      more();
    }
  };
  churn([] {});
  REQUIRE(heap.counters().moves > 64);
  std::vector<Offset> small;
  churn([&] { small.push_back(heap.allocate({1 + random() % (200 * kKiB)})); });
  std::map<Size, bool> granules;  // of the small ones
  for (const Offset offset : small) {
    for (Size at = offset / (2 * kMiB); at * 2 * kMiB < offset + heap.size_of(offset); ++at)
      granules[at] = true;
  }
  for (const Offset offset : large) {
    for (Size at = offset / (2 * kMiB); at * 2 * kMiB < offset + heap.size_of(offset); ++at)
      CHECK(granules.count(at) == 0);
  }
}

TEST_CASE("where addresses are few, small objects share granules with others") {
  SimArena arena(400 * kMiB, {.granule = 2 * kMiB, .limit = 64 * kMiB});
  DevicePoolHeap heap(arena);
  std::mt19937_64 random(4);
  std::vector<Offset> live;
  for (int i = 0; i < 20000; ++i) {
    if (heap.live() < 48 * kMiB) {
      const Offset offset =
          heap.allocate({random() % 4 != 0 ? 1 + random() % (256 * kKiB) : 1 + random() % (6 * kMiB)});
      if (offset != kNoOffset) live.push_back(offset);
    }
    if (heap.live() > 40 * kMiB) {
      std::swap(live[random() % live.size()], live.back());
      CHECK(heap.free(live.back()));
      live.pop_back();
    }
  }
  CHECK(heap.counters().moves > 64);
  for (const Offset offset : live) CHECK(heap.free(offset));
  heap.trim();
  CHECK(arena.committed() == 0);
  CHECK(heap.allocate({64 * kMiB}) != kNoOffset);
}

TEST_CASE("memory is moved for one size so often; then the pool grows for it") {
  for (const Size patience : {Size{0}, Size{1}, Size{3}}) {
    SimArena arena(1 * kGiB, kDevice);
    DevicePoolHeap heap(arena, {.patience = patience, .excess = 1});
    const Offset peak = heap.allocate({64 * kMiB});
    REQUIRE(heap.free(peak));
    for (int i = 0; i < 6; ++i) {  // 17 of 32 granules, then a request as large as what remains in two pieces
      std::vector<Offset> held;
      for (int k = 0; k < 16; ++k) held.push_back(heap.allocate({4 * kMiB}));
      for (int k = 0; k < 16; k += 2) REQUIRE(heap.free(held[static_cast<size_t>(k)]));
      const Offset large = heap.allocate({32 * kMiB});
      REQUIRE(large != kNoOffset);
      REQUIRE(heap.free(large));
      for (int k = 1; k < 16; k += 2) REQUIRE(heap.free(held[static_cast<size_t>(k)]));
    }
    CHECK(heap.counters().moves == patience);
    CHECK(arena.committed() == (patience == 0 ? 96 : 96) * kMiB);
  }
}

TEST_CASE("small objects take the ends of free blocks, large ones their begins") {
  SimArena arena(64 * kMiB, kDevice);
  DevicePoolHeap heap(arena);
  const Offset all = heap.allocate({16 * kMiB});
  REQUIRE(heap.free(all));
  CHECK(heap.allocate({1000}) == 16 * kMiB - 1024);
  CHECK(heap.allocate({2 * kMiB}) == 0);
  CHECK(heap.allocate({512}) == 16 * kMiB - 1536);
  CHECK(heap.size_of(16 * kMiB - 1024) == 1024);
}

TEST_CASE("a pool that moves often puts sizes below a granule that come again and again at the ends, too") {
  SimArena arena(256 * kMiB, {.granule = 2 * kMiB, .limit = 16 * kMiB});
  DevicePoolHeap heap(arena);
  const auto begins = [&](Size size) {  // where one goes in a free block of all memory
    const Offset all = heap.allocate({16 * kMiB});
    REQUIRE(all != kNoOffset);
    REQUIRE(heap.free(all));
    const Offset offset = heap.allocate({size});
    REQUIRE(heap.free(offset));
    REQUIRE((offset == all || offset == all + 16 * kMiB - size));
    return offset == all;
  };
  for (int i = 0; i < 200; ++i) CHECK(begins(512 * kKiB));
  for (int round = 0; round < 1000 && heap.counters().moves < 64; ++round) {
    Offset at[4];
    for (Offset& offset : at) REQUIRE((offset = heap.allocate({4 * kMiB})) != kNoOffset);
    REQUIRE(heap.free(at[0]));
    REQUIRE(heap.free(at[2]));
    const Offset large = heap.allocate({8 * kMiB});
    REQUIRE(large != kNoOffset);
    for (const Offset offset : {at[1], at[3], large}) REQUIRE(heap.free(offset));
  }
  REQUIRE(heap.counters().moves >= 64);
  for (int i = 1; i < 128; ++i) CHECK(begins(512 * kKiB));
  for (int i = 0; i < 10; ++i) CHECK_FALSE(begins(512 * kKiB));
  for (int i = 0; i < 200; ++i) CHECK(begins(2 * kMiB));
}

TEST_CASE(
    "a stream prefers its own memory, then what is ordered, then a wait; and grows when waits are last") {
  for (const bool wait_first : {true, false}) {
    SimArena arena(1 * kGiB, kDevice);
    CheckedStreams streams;
    DevicePoolHeap heap(arena, {.wait_first = wait_first}, &streams);
    const Offset zero = heap.allocate({.size = 4 * kMiB, .stream = 0});
    const Offset one = heap.allocate({.size = 8 * kMiB, .stream = 1});
    REQUIRE(heap.free(zero));
    REQUIRE(heap.free(one));
    CHECK(heap.allocate({.size = 4 * kMiB, .stream = 1}) == one);  // though the other's fits exactly
    CHECK(heap.allocate({.size = 4 * kMiB, .stream = 1}) == one + 4 * kMiB);
    CHECK(streams.waits == 0);
    const Offset next = heap.allocate({.size = 4 * kMiB, .stream = 1});
    CHECK((next == zero) == wait_first);
    CHECK(streams.waits == (wait_first ? 1 : 0));
  }
}

TEST_CASE("a stream that cannot be ordered grows, and at a cap is refused") {
  SimArena arena(1 * kGiB, {.granule = 2 * kMiB, .limit = 8 * kMiB});
  CheckedStreams streams;
  streams.refuses = true;
  DevicePoolHeap heap(arena, {}, &streams);
  const Offset first = heap.allocate({.size = 4 * kMiB, .stream = 0});
  REQUIRE(heap.free(first));
  const Offset second = heap.allocate({.size = 4 * kMiB, .stream = 1});
  CHECK(second != first);
  CHECK(second != kNoOffset);
  CHECK(heap.allocate({.size = 8 * kMiB, .stream = 1}) == kNoOffset);
  CHECK(arena.committed() <= 8 * kMiB);
}

TEST_CASE("plain memory comes from segments and is never moved") {
  SimArena arena(64 * kMiB, kDevice), addresses(256 * kMiB, kDevice);
  class Beyond final : public Segments {  // offsets beyond the pool's arena
   public:
    explicit Beyond(Arena& arena) : inner_(arena) {}
    Offset take(Size size) noexcept override {
      const Offset offset = inner_.take(size);
      return offset == kNoOffset ? kNoOffset : offset + kGiB;
    }
    void give_back(Range segment) noexcept override {
      inner_.give_back({segment.begin - kGiB, segment.size});
    }
    Size held() const noexcept override { return inner_.held(); }

   private:
    ArenaSegments inner_;
  } segments(addresses);
  DevicePoolHeap heap(arena, {}, nullptr, &segments);
  CHECK(DevicePoolHeap(arena).allocate({.size = 100, .plain = true}) == kNoOffset);
  const Offset first = heap.allocate({.size = 3 * kMiB, .plain = true});
  const Offset second = heap.allocate({.size = 5 * kMiB, .plain = true});
  const Offset large = heap.allocate({.size = 50 * kMiB, .plain = true});
  CHECK(first >= kGiB);
  CHECK(second == first + 3 * kMiB);  // of one segment of 20 MiB
  CHECK(segments.held() == 70 * kMiB);
  CHECK(arena.committed() == 0);
  CHECK(heap.live() == 58 * kMiB);
  CHECK(heap.free(first));
  CHECK(heap.free(large));
  heap.trim();
  CHECK(segments.held() == 20 * kMiB);  // one is still in use
  CHECK(heap.allocate({.size = 3 * kMiB, .plain = true}) == first);
  CHECK(heap.free(first));
  CHECK(heap.free(second));
  CHECK_FALSE(heap.free(second));
  heap.trim();
  CHECK(segments.held() == 0);
}

TEST_CASE("options that cannot be, and sizes that wrap, are refused") {
  SimArena arena(64 * kMiB, kDevice);
  CHECK_FALSE(DevicePoolHeap(arena, {.alignment = 3}).ok());
  CHECK_FALSE(DevicePoolHeap(arena, {.alignment = 4 * kMiB}).ok());
  DevicePoolHeap heap(arena);
  CHECK(heap.allocate({~Size{0} - 3, 1}) == kNoOffset);
  CHECK(heap.allocate({0, 1}) == kNoOffset);
  CHECK(heap.allocate({64 * kMiB + 1, 1}) == kNoOffset);
  CHECK(heap.allocate({100, 1 * kMiB}) % (1 * kMiB) == 0);
}

TEST_CASE("random walks: caps, streams, alignments, trims and places set aside, next to a map") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Size limit = seed % 4 == 0 ? ~Size{0} : (2 + random() % 30) * kMiB;
    Granules arena(256 * kMiB, limit);
    CheckedStreams streams;
    DevicePoolHeap heap(arena, {.small = 32 * kKiB, .patience = seed % 3, .wait_first = seed % 2 == 0},
                        &streams);
    struct Object {
      Size size;
      StreamId stream;
    };
    std::map<Offset, Object> live;
    Size bytes = 0;
    const unsigned kinds = 1 + seed % 3;
    for (int step = 0; step < 3000; ++step) {
      const auto dice = random() % 1000;
      if (dice < 3) heap.trim();
      if (dice == 3) CHECK(heap.set_aside(random() % 2 == 0 ? 0 : (1 + random() % 20) * kMiB));
      if (dice == 4) heap.treat_aside(static_cast<DevicePoolHeap::Aside>(random() % 4));
      if (dice == 5) streams.refuses = !streams.refuses;
      if (dice < 8) CHECK(heap.free(random() % arena.capacity() | 1) == false);
      if (live.empty() || dice % 100 < (step / 500 % 2 == 0 ? 60 : 40)) {
        Request request{.size = 1 + random() % (Size{1} << (6 + random() % 16)),
                        .stream = static_cast<StreamId>(random() % kinds)};
        if (random() % 20 == 0) request.alignment = Size{1} << random() % 20;
        const bool at = heap.aside().size > 4 * kMiB && random() % 3 == 0;
        const Offset offset =
            at ? heap.allocate_at(heap.aside().begin + random() % (4 * kMiB) / 512 * 512, request)
               : heap.allocate(request);
        CHECK(arena.committed() <= limit);
        if (offset == kNoOffset) continue;
        const Range range{offset, request.size};
        REQUIRE(offset % std::max<Size>(request.alignment, 512) == 0);
        REQUIRE(arena.holds(range));
        REQUIRE(heap.size_of(offset) >= request.size);
        const auto after = live.lower_bound(offset);
        REQUIRE((after == live.end() || after->first >= range.end()));
        REQUIRE((after == live.begin() || std::prev(after)->first + std::prev(after)->second.size <= offset));
        REQUIRE(streams.may_use(range, request.stream));
        live[offset] = {request.size, request.stream};
        bytes += request.size;
      } else {
        auto victim = live.lower_bound(random() % arena.capacity());
        if (victim == live.end()) victim = live.begin();
        streams.used({victim->first, victim->second.size}, victim->second.stream);
        REQUIRE(heap.free(victim->first));
        REQUIRE_FALSE(heap.free(victim->first));
        bytes -= victim->second.size;
        live.erase(victim);
      }
      REQUIRE(heap.live() == bytes);
      if (step % 100 == 0) {
        for (const auto& [offset, object] : live) REQUIRE(arena.holds({offset, object.size}));
      }
    }
    for (const auto& [offset, object] : live) REQUIRE(heap.free(offset));
    streams.refuses = false;
    heap.trim();
    CHECK(arena.committed() == 0);
    CHECK(heap.live() == 0);
  }
}

TEST_CASE("bins find a smallest block, as far as they look") {
  struct Record : BinLinks {
    Range range;
  };
  std::mt19937_64 random(1);
  std::vector<Record> records(400);
  static FreeBins bins;
  std::vector<bool> in(records.size());
  for (std::uint32_t i = 1; i < records.size(); ++i)
    records[i].range = {i * kGiB, 512 * (1 + random() % 3000)};
  for (int step = 0; step < 20000; ++step) {
    const auto index = static_cast<std::uint32_t>(1 + random() % (records.size() - 1));
    const Size units = records[index].range.size / 512;
    if (in[index]) {
      bins.erase(records.data(), index);
    } else {
      bins.insert(records.data(), index, units);
    }
    in[index] = !in[index];
    const Size wanted = 512 * (1 + random() % 3000);
    Size best = ~Size{0};
    for (size_t i = 1; i < records.size(); ++i) {
      if (in[i] && records[i].range.size >= wanted) best = std::min(best, records[i].range.size);
    }
    const auto found = bins.find(records.data(), wanted, wanted / 512);
    REQUIRE((found == 0) == (best == ~Size{0}));  // few of a class: none is overlooked
    if (found != 0) REQUIRE(records[found].range.size == best);
  }
}

TEST_CASE("the set of starts finds the last one at or before an offset") {
  StartSet set;
  const Size count = Size{1} << 30;
  REQUIRE(set.reset(count));
  std::mt19937_64 random(2);
  std::map<Size, bool> oracle{{0, true}};
  set.insert(0);
  for (int step = 0; step < 20000; ++step) {
    const Size number = 1 + random() % (random() % 2 == 0 ? 5000 : count - 1);
    if (oracle.erase(number) != 0) {
      set.erase(number);
    } else {
      oracle[number] = true;
      set.insert(number);
    }
    const Size asked = random() % (random() % 2 == 0 ? 5000 : count);
    REQUIRE(set.at_or_before(asked) == std::prev(oracle.upper_bound(asked))->first);
  }
}

TEST_CASE("a stream that cannot be ordered, as during a capture, still gets memory that nobody used") {
  SimArena arena(64 * kGiB, kDevice);
  CheckedStreams order;
  DevicePoolHeap heap(arena, {}, &order);
  std::mt19937_64 random(3);
  std::vector<std::pair<Range, StreamId>> live;
  for (int i = 0; i < 8000; ++i) {
    order.refuses = i >= 2000;
    if (random() % 2 == 0 && !live.empty()) {
      const size_t at = random() % live.size();
      order.used(live[at].first, live[at].second);
      REQUIRE(heap.free(live[at].first.begin));
      live[at] = live.back();
      live.pop_back();
      continue;
    }
    const Size size = random() % 4 != 0 ? 1 + random() % (256 * kKiB) : 1 + random() % (64 * kMiB);
    const auto stream = static_cast<StreamId>(random() % 3);
    const Offset offset = heap.allocate({.size = size, .stream = stream});
    REQUIRE(offset != kNoOffset);
    REQUIRE(order.may_use({offset, size}, stream));
    live.push_back({{offset, size}, stream});
  }
}

TEST_CASE("an object is broken up into parts; what is left of it is free, after its stream") {
  SimArena arena(1 * kGiB, kDevice);
  CheckedStreams order;
  DevicePoolHeap heap(arena, {}, &order);
  const Offset before = heap.allocate({4 * kMiB}), whole = heap.allocate({.size = 32 * kMiB, .stream = 1});
  REQUIRE(whole != kNoOffset);
  const std::vector<DevicePoolHeap::Part> parts = {{{whole, 1000}, 1},
                                                   {{whole + 1024, 8 * kMiB}, 2},
                                                   {{whole + 16 * kMiB, 5}, 1},
                                                   {{whole + 32 * kMiB - 512, 512}, 1}};
  CHECK_FALSE(heap.break_up(whole + 512, parts));
  const Size committed = arena.committed();
  REQUIRE(heap.break_up(whole, parts));
  CHECK(arena.committed() == committed);
  CHECK(heap.live() == 4 * kMiB + 1000 + 8 * kMiB + 5 + 512);
  CHECK(heap.size_of(whole) == 1024);
  CHECK(heap.size_of(whole + 1024) == 8 * kMiB);
  CHECK(heap.size_of(whole + 16 * kMiB) == 512);
  CHECK(heap.has_free({.size = 15 * kMiB, .stream = 1}));
  CHECK_FALSE(heap.has_free({.size = 16 * kMiB, .stream = 1}));
  CHECK_FALSE(heap.has_free({.size = 1 * kMiB, .stream = 2}));
  const Offset part = heap.allocate({.size = 15 * kMiB, .stream = 1});  // in what is left, without a wait
  CHECK(part > whole);
  CHECK(part < whole + 32 * kMiB);
  CHECK(order.waits == 0);
  for (const DevicePoolHeap::Part& each : parts) CHECK(heap.free(each.range.begin));
  CHECK(heap.free(part));
  CHECK(heap.free(before));
  CHECK(heap.live() == 0);
  heap.trim();
  CHECK(arena.committed() == 0);

  const Offset empty = heap.allocate({2 * kMiB});  // none of it lives
  REQUIRE(heap.break_up(empty, {}));
  CHECK(heap.live() == 0);
  CHECK_FALSE(heap.free(empty));
}

}  // namespace memoir
