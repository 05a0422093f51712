// SPDX-License-Identifier: Apache-2.0
//
// The rules of PyTorch's caching allocator, one by one. tests/torch_allocator compares whole runs with
// PyTorch's own.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/peers/pytorch/expandable_heap.h"
#include "memoir/heap/peers/pytorch/pytorch_heap.h"
#include "support/arena_segments.h"

namespace memoir {

namespace {

/// Gives each segment the addresses behind the one before, refuses when told to, and notes what is asked.
class ScriptedSegments final : public Segments {
 public:
  explicit ScriptedSegments(std::vector<std::string>* log = nullptr) : log_(log) {}
  Offset take(Size size) noexcept override {
    if (log_ != nullptr) log_->push_back("take " + std::to_string(size / kMiB));
    if (refusals > 0) {
      --refusals;
      return kNoOffset;
    }
    const Offset at = next_;
    next_ += size;
    held_ += size;
    return at;
  }
  void give_back(Range segment) noexcept override {
    if (log_ != nullptr) log_->push_back("give back " + std::to_string(segment.size / kMiB));
    held_ -= segment.size;
  }
  Size held() const noexcept override { return held_; }

  int refusals = 0;  // of the next requests

 private:
  std::vector<std::string>* log_;
  Offset next_ = 0;
  Size held_ = 0;
};

class ScriptedCollector final : public Collector {
 public:
  explicit ScriptedCollector(std::vector<std::string>* log) : log_(log) {}
  void collect(bool full) noexcept override {
    log_->push_back(full ? "await" : "callbacks");
    if (full && on_await) on_await();
    if (!full && on_callbacks) on_callbacks();
  }
  std::function<void()> on_await, on_callbacks;

 private:
  std::vector<std::string>* log_;
};

Size segments_of(const PyTorchPools& heap) {
  Size count = 0;
  heap.for_each_block([&](const BlockView& block) { count += block.begins_segment; });
  return count;
}

}  // namespace

TEST_CASE("sizes become multiples of 512 bytes, or steps between powers of two") {
  const auto block = [](const PyTorchOptions& options, Size size) {
    return PyTorchRounding(options).block_size(size);
  };
  PyTorchOptions plain;
  CHECK(block(plain, 1) == 512);
  CHECK(block(plain, 512) == 512);
  CHECK(block(plain, 513) == 1024);
  CHECK(block(plain, 1'000'000) == 1'000'448);

  PyTorchOptions four{.roundup_power2_divisions = 4};
  CHECK(block(four, 2048) == 2048);  // up to 512 bytes x divisions nothing changes
  CHECK(block(four, 2049) == 2560);
  CHECK(block(four, 1'200'000) == kMiB + kMiB / 4);
  CHECK(block(four, 2 * kMiB) == 2 * kMiB);
  CHECK(block(four, 2 * kMiB + 1) == 2 * kMiB + kMiB / 2);
  CHECK(block({.roundup_power2_divisions = 1}, 1'200'000) == align_up(1'200'000, 512));

  const auto ranges = PyTorchOptions::parse("roundup_power2_divisions:[4:2,8:8,>:0]");
  CHECK(block(ranges, 700'000) == kMiB * 3 / 4);   // the first value counts below it as well
  CHECK(block(ranges, 5 * kMiB) == 6 * kMiB);      // [4, 8) MiB in halves
  CHECK(block(ranges, 9 * kMiB - 1) == 9 * kMiB);  // [8, 16) MiB in eighths
  CHECK(block(ranges, 17 * kMiB + 1) == 17 * kMiB + 512);

  const PyTorchRounding rounding(plain);
  CHECK(rounding.segment_size(kMiB) == 2 * kMiB);
  CHECK(rounding.segment_size(kMiB + 512) == 20 * kMiB);
  CHECK(rounding.segment_size(10 * kMiB - 512) == 20 * kMiB);
  CHECK(rounding.segment_size(10 * kMiB) == 10 * kMiB);
  CHECK(rounding.segment_size(11 * kMiB) == 12 * kMiB);
  CHECK(PyTorchRounding({.large_segment_size = 40 * kMiB}).segment_size(2 * kMiB) == 40 * kMiB);
}

TEST_CASE("small and large objects live in separate segments, and so do streams") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments);
  const Offset small = heap.allocate({1000, 1});
  const Offset large = heap.allocate({3 * kMiB, 1});
  CHECK(heap.reserved() == 22 * kMiB);
  CHECK(heap.allocate({1000, 1, kNoSite, 1}) == 22 * kMiB);  // another stream's segment
  CHECK(heap.allocate({1000, 1}) == small + 1024);
  CHECK(heap.allocate({kMiB + 1, 1}) == large + 3 * kMiB);
  CHECK(heap.free(small));
  CHECK(heap.allocate({1000, 1, kNoSite, 1}) == 22 * kMiB + 1024);  // not what stream 0 freed
  CHECK(heap.allocate({512, 1}) == small);
  CHECK(heap.live() == 1000 + 1000 + 3 * kMiB + kMiB + 1 + 1000 + 512);
}

TEST_CASE("a rest is split off from 512 bytes on in small segments, above 1 MiB in large ones") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments);
  CHECK(heap.size_of(heap.allocate({kMiB - 512, 1})) == kMiB - 512);
  CHECK(heap.size_of(heap.allocate({kMiB, 1})) == kMiB);
  CHECK(heap.size_of(heap.allocate({512, 1})) == 512);  // the rest of the segment, exactly

  const Offset most = heap.allocate({11 * kMiB, 1});
  CHECK(heap.size_of(most) == 12 * kMiB);  // 1 MiB is not worth a block
  CHECK(heap.free(most));
  CHECK(heap.size_of(heap.allocate({11 * kMiB - 512, 1})) == 11 * kMiB - 512);
}

TEST_CASE("neighbours merge at once, and the lowest of equal blocks is taken") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments);
  std::vector<Offset> at;
  for (int i = 0; i < 8; ++i) at.push_back(heap.allocate({64 * kKiB, 1}));
  for (const int i : {5, 1, 3}) CHECK(heap.free(at[i]));
  CHECK(heap.allocate({64 * kKiB, 1}) == at[1]);
  CHECK(heap.free(at[2]));
  CHECK(heap.allocate({128 * kKiB, 1}) == at[2]);
  CHECK_FALSE(heap.free(at[3]));
}

TEST_CASE("max_split_size keeps large blocks whole, for requests that nearly fill them") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments, {.max_split_size = 30 * kMiB, .max_non_split_rounding = 20 * kMiB});
  const Offset big = heap.allocate({50 * kMiB, 1});
  CHECK(heap.free(big));
  CHECK(heap.allocate({29 * kMiB, 1}) != big);        // too small for a block that is kept whole
  const Offset near = heap.allocate({31 * kMiB, 1});  // leaves 19 of 50 MiB, and they are not split off
  CHECK(near == big);
  CHECK(heap.size_of(near) == 50 * kMiB);
  CHECK(heap.free(near));
  CHECK(heap.allocate({30 * kMiB, 1}) != big);  // would leave 20
}

TEST_CASE("the ladder is climbed in PyTorch's order") {
  std::vector<std::string> log;
  ScriptedSegments segments(&log);
  ScriptedCollector collector(&log);
  using Log = std::vector<std::string>;

  SUBCASE("what the callbacks free is looked at before the device is asked") {
    PyTorchHeap heap(segments, {}, &collector);
    const Offset only = heap.allocate({12 * kMiB, 1});
    log.clear();
    collector.on_callbacks = [&] { heap.free(only); };
    CHECK(heap.allocate({12 * kMiB, 1}) == only);
    CHECK(log == Log{"callbacks"});
  }
  SUBCASE("oversize blocks go first, then everything that is unused") {
    PyTorchHeap heap(segments, {.max_split_size = 24 * kMiB}, &collector);
    const Offset unused[] = {heap.allocate({40 * kMiB, 1}), heap.allocate({64 * kMiB, 1}),
                             heap.allocate({2 * kMiB, 1})};
    heap.allocate({1, 1});
    for (const Offset offset : unused) CHECK(heap.free(offset));
    log.clear();
    segments.refusals = 1;
    CHECK(heap.allocate({100 * kMiB, 1}) != kNoOffset);
    CHECK(log == Log{"callbacks", "take 100", "give back 64", "give back 40", "take 100"});
    log.clear();
    segments.refusals = 3;
    // nothing oversize is left: straight to the last rung
    CHECK(heap.allocate({100 * kMiB, 1}) == kNoOffset);
    CHECK(log == Log{"callbacks", "take 100", "await", "give back 20", "take 100"});
    CHECK(heap.counts().num_ooms == 1);
    CHECK(heap.counts().num_alloc_retries == 1);
  }
  SUBCASE("one oversize block that suffices goes alone") {
    PyTorchHeap heap(segments, {.max_split_size = 20 * kMiB}, &collector);
    const Offset unused[] = {heap.allocate({30 * kMiB, 1}), heap.allocate({64 * kMiB, 1}),
                             heap.allocate({80 * kMiB, 1})};
    for (const Offset offset : unused) CHECK(heap.free(offset));
    log.clear();
    segments.refusals = 1;
    CHECK(heap.allocate({42 * kMiB, 1}) != kNoOffset);  // leaves too much of 64
    CHECK(log == Log{"callbacks", "take 42", "give back 64", "take 42"});
  }
  SUBCASE("what the wait frees is not looked at, but given back: the hole of issue 189504") {
    for (const bool mended : {false, true}) {
      PyTorchHeap heap(segments, {.search_after_sync = mended}, &collector);
      const Offset whole = heap.allocate({12 * kMiB, 1});
      const Offset split = heap.allocate({6 * kMiB, 1});
      heap.allocate({6 * kMiB, 1});
      heap.allocate({8 * kMiB, 1});  // the rest of 20 MiB
      collector.on_await = [&, whole, split] {
        heap.free(whole);
        heap.free(split);
      };
      segments.refusals = 2;
      log.clear();
      const Offset found = heap.allocate({5 * kMiB, 1});
      if (mended) {
        CHECK(found == split);
        CHECK(log == Log{"callbacks", "take 20", "await"});
      } else {
        CHECK(found == kNoOffset);
        CHECK(log == Log{"callbacks", "take 20", "await", "give back 12", "take 20"});
      }
      collector.on_await = nullptr;
      segments.refusals = 0;
    }
  }
  SUBCASE("the cap counts segments, before the device is asked") {
    PyTorchHeap heap(segments, {.per_process_memory_fraction = 0.5, .device_memory = 80 * kMiB}, &collector);
    CHECK(heap.allocate({40 * kMiB, 1}) != kNoOffset);
    log.clear();
    CHECK(heap.allocate({1, 1}) == kNoOffset);
    CHECK(log == Log{"callbacks", "await"});
  }
}

TEST_CASE("above the threshold, segments that were not used for the longest go back") {
  std::vector<std::string> log;
  ScriptedSegments segments(&log);
  PyTorchHeap heap(segments, {.garbage_collection_threshold = 0.5,
                              .per_process_memory_fraction = 0.5,
                              .device_memory = 400 * kMiB});  // 200 MiB allowed, 100 without a collection
  const Offset old = heap.allocate({60 * kMiB, 1});
  CHECK(heap.free(old));
  for (int i = 0; i < 10; ++i) CHECK(heap.free(heap.allocate({70 * kMiB, 1})));
  log.clear();
  CHECK(heap.allocate({80 * kMiB, 1}) != kNoOffset);
  CHECK(log == std::vector<std::string>{"give back 60", "take 80"});
}

TEST_CASE("private pools keep their segments until their last use ended") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments);
  const Offset outside = heap.allocate({1000, 1});
  CHECK(heap.free(outside));
  CHECK(heap.begin_allocate_to_pool(7));
  CHECK_FALSE(heap.begin_allocate_to_pool(7));
  CHECK(heap.pool_uses(7) == 1);
  const Offset inside = heap.allocate({1000, 1});
  CHECK(inside == 2 * kMiB);  // not what is free outside
  CHECK(heap.end_allocate_to_pool(7));
  CHECK_FALSE(heap.end_allocate_to_pool(7));
  CHECK(heap.allocate({1000, 1}) == outside);
  CHECK(heap.free(inside));
  heap.trim();
  CHECK(heap.reserved() == 4 * kMiB);  // a graph may be replayed there
  CHECK(heap.release_pool(7));
  CHECK_FALSE(heap.release_pool(7));
  CHECK_FALSE(heap.add_pool_use(7));  // its time is over
  heap.trim();
  CHECK(heap.reserved() == 2 * kMiB);
  CHECK(heap.add_pool_use(7));  // forgotten, so this is a new one

  SUBCASE("a filter says which streams") {
    const StreamId wanted = 3;
    const PoolFilter filter{
        [](const void* stream, StreamId of) noexcept { return *static_cast<const StreamId*>(stream) == of; },
        &wanted};
    CHECK(heap.begin_allocate_to_pool(7, filter));
    CHECK(heap.allocate({1000, 1}) == outside + 1024);
    const Offset captured = heap.allocate({1000, 1, kNoSite, 3});
    heap.for_each_block([&](const BlockView& block) {
      if (block.range.begin == captured) CHECK(block.pool == 7);
    });
    CHECK(heap.free(captured));
    heap.trim_on(3);  // PyTorch raises here
    CHECK(segments_of(heap) == 2);
  }
  SUBCASE("one that is lent out serves what the device refused") {
    CHECK(heap.begin_allocate_to_pool(7));
    const Offset cached = heap.allocate({12 * kMiB, 1});
    CHECK(heap.end_allocate_to_pool(7));
    CHECK(heap.free(cached));
    segments.refusals = 2;
    CHECK(heap.allocate({12 * kMiB, 1}) == kNoOffset);
    CHECK(heap.lend_pool(7, true));
    segments.refusals = 1;
    CHECK(heap.allocate({12 * kMiB, 1}) == cached);
    CHECK_FALSE(heap.lend_pool(8, true));
  }
  SUBCASE("one that is kept whole is never split") {
    CHECK(heap.keep_pool_whole(7));
    CHECK(heap.begin_allocate_to_pool(7));
    CHECK(heap.size_of(heap.allocate({1000, 1})) == 2 * kMiB);
  }
}

TEST_CASE("under a MemPool cached segments are given back, as up to torch 2.12 they were not") {
  for (const bool old : {false, true}) {
    ScriptedSegments segments;
    PyTorchHeap heap(segments, {.keep_under_mempool = old});
    CHECK(heap.free(heap.allocate({12 * kMiB, 1})));
    CHECK(heap.begin_allocate_to_pool(1, {}, false));
    segments.refusals = 1;
    CHECK((heap.allocate({40 * kMiB, 1}) == kNoOffset) == old);
    heap.trim();
    CHECK(heap.reserved() == (old ? 12 * kMiB : 40 * kMiB));
  }
}

TEST_CASE("of blocks of one size the lowest is taken, by torch 2.12 the one whose record is the oldest") {
  // Two segments' rests of one size: the second segment's record is younger, whatever lies lower.
  for (const bool by_record : {false, true}) {
    ScriptedSegments segments;
    PyTorchHeap heap(segments, {.ties_by_record = by_record});
    const RestoredObject low[] = {{{0, 15 * kMiB}, 15 * kMiB}},
                         high[] = {{{32 * kMiB, 15 * kMiB}, 15 * kMiB}};
    CHECK(heap.restore({32 * kMiB, 20 * kMiB}, 0, high));
    CHECK(heap.restore({0, 20 * kMiB}, 0, low));
    CHECK(heap.allocate({5 * kMiB, 1}) == (by_record ? 47 * kMiB : 15 * kMiB));
  }
}

TEST_CASE("expandable areas grow by units, at the lowest addresses, and shrink by whole units") {
  SimArena arena(64 * kGiB, {.granule = 2 * kMiB, .limit = 100 * kMiB});
  ExpandableHeap heap(arena, {.device_memory = kGiB});
  REQUIRE(heap.ok());
  const Offset first = heap.allocate({15 * kMiB, 1});
  CHECK(arena.committed() == 20 * kMiB);
  const Offset second = heap.allocate({15 * kMiB, 1});  // reaches into the next unit
  CHECK(second == first + 15 * kMiB);
  CHECK(arena.committed() == 40 * kMiB);
  const Offset third = heap.allocate({30 * kMiB, 1});
  CHECK(third == first + 30 * kMiB);
  CHECK(arena.committed() == 60 * kMiB);
  CHECK(heap.allocate({1, 1}) != kNoOffset);  // small objects have an area of their own
  CHECK(arena.committed() == 62 * kMiB);

  CHECK(heap.free(first));
  CHECK(heap.free(second));
  heap.trim();
  CHECK(arena.committed() == 42 * kMiB);          // of 30 free MiB one unit is free as a whole
  CHECK(heap.allocate({12 * kMiB, 1}) == first);  // the lowest addresses, mapped again ...
  CHECK(arena.committed() == 62 * kMiB);
  CHECK(heap.allocate({18 * kMiB, 1}) == first + 12 * kMiB);  // ... and joined with what was free behind them
  CHECK(arena.committed() == 62 * kMiB);
  CHECK(heap.allocate({40 * kMiB, 1}) == kNoOffset);
  CHECK(heap.counts().num_ooms == 1);
}

TEST_CASE("an area without memory is given up, and its addresses serve again") {
  SimArena arena(3 * (kGiB + kGiB / 8 + 32 * kMiB), {.granule = 2 * kMiB});
  ExpandableHeap heap(arena, {.device_memory = kGiB});
  REQUIRE(heap.ok());
  for (StreamId stream = 0; stream < 9; ++stream) {
    const Offset offset = heap.allocate({12 * kMiB, 1, kNoSite, stream});
    REQUIRE(offset != kNoOffset);
    CHECK(heap.free(offset));
    heap.trim();
    CHECK(arena.committed() == 0);
  }
  std::vector<Offset> held;
  for (StreamId stream = 0; stream < 4; ++stream)
    held.push_back(heap.allocate({12 * kMiB, 1, kNoSite, stream}));
  CHECK(std::count(held.begin(), held.end(), kNoOffset) == 1);  // three areas of addresses, no more
  CHECK_FALSE(ExpandableHeap(arena, {.device_memory = 64 * kGiB}).ok());
}

TEST_CASE("recorded segments are taken over, unless they cannot be") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments);
  const Range large{64 * kMiB, 20 * kMiB};
  const RestoredObject good[] = {{{64 * kMiB, 2 * kMiB}, 2'000'000}, {{70 * kMiB, 5 * kMiB}, 5 * kMiB}};
  const RestoredObject overlapping[] = {{{64 * kMiB, 2 * kMiB}, 1}, {{65 * kMiB, kMiB}, 1}};
  const RestoredObject outside[] = {{{83 * kMiB, 2 * kMiB}, 1}};
  const RestoredObject odd[] = {{{64 * kMiB, 1000}, 1}};
  const RestoredObject overfull[] = {{{64 * kMiB, 1024}, 1025}};
  const RestoredObject far[] = {{{~Size{0} - 1023, 1024}, 1}};
  CHECK_FALSE(heap.restore(large, 0, overlapping));
  CHECK_FALSE(heap.restore(large, 0, outside));
  CHECK_FALSE(heap.restore(large, 0, odd));
  CHECK_FALSE(heap.restore(large, 0, overfull));
  CHECK_FALSE(heap.restore(large, 0, far));
  CHECK_FALSE(heap.restore({64 * kMiB, 0}, 0, {}));
  CHECK(heap.reserved() == 0);
  CHECK(heap.restore(large, 0, good));
  CHECK(heap.reserved() == 20 * kMiB);
  CHECK(heap.live() == 2'000'000 + 5 * kMiB);
  CHECK(heap.size_of(64 * kMiB) == 2 * kMiB);
  CHECK(heap.allocate({3 * kMiB, 1}) == 66 * kMiB);
  CHECK(heap.free(70 * kMiB));
  CHECK(heap.free(64 * kMiB));
  CHECK(heap.free(66 * kMiB));
  heap.trim();
  CHECK(heap.reserved() == 0);
}

TEST_CASE("a recorded area is taken over with its holes, unless it cannot be") {
  SimArena arena(256 * kMiB, {.granule = 2 * kMiB, .limit = 64 * kMiB});
  ExpandableHeap heap(arena, {.device_memory = 80 * kMiB});  // two areas of 100 MiB
  REQUIRE(heap.ok());
  const Range memory[] = {{20 * kMiB, 20 * kMiB}, {60 * kMiB, 40 * kMiB}};
  const RestoredObject objects[] = {{{20 * kMiB, 2 * kMiB}, 2'000'000}, {{62 * kMiB, 5 * kMiB}, 5 * kMiB}};
  const RestoredObject outside[] = {{{50 * kMiB, 2 * kMiB}, 1}};
  const RestoredObject across[] = {{{39 * kMiB, 2 * kMiB}, 1}};
  const Range odd[] = {{kMiB, 2 * kMiB}};
  const Range touching[] = {{0, 20 * kMiB}, {20 * kMiB, 20 * kMiB}};
  const Range beyond[] = {{80 * kMiB, 40 * kMiB}};
  const Range over_limit[] = {{0, 20 * kMiB}, {40 * kMiB, 60 * kMiB}};
  CHECK(heap.restore(false, 0, memory, outside) == kNoOffset);
  CHECK(heap.restore(false, 0, memory, across) == kNoOffset);
  CHECK(heap.restore(false, 0, odd, {}) == kNoOffset);
  CHECK(heap.restore(false, 0, touching, {}) == kNoOffset);
  CHECK(heap.restore(false, 0, beyond, {}) == kNoOffset);
  CHECK(heap.restore(false, 0, {}, {}) == kNoOffset);
  CHECK(heap.restore(false, 0, over_limit, {}) == kNoOffset);
  CHECK(heap.reserved() == 0);
  CHECK(arena.committed() == 0);

  REQUIRE(heap.restore(false, 0, memory, objects) == 0);
  CHECK(heap.reserved() == 60 * kMiB);
  CHECK(heap.live() == 2'000'000 + 5 * kMiB);
  CHECK(heap.size_of(62 * kMiB) == 5 * kMiB);
  CHECK(heap.allocate({30 * kMiB, 1}) == 67 * kMiB);
  CHECK(heap.allocate({17 * kMiB, 1}) == 22 * kMiB);
  CHECK(heap.allocate({2 * kMiB, 1}) == 60 * kMiB);
  CHECK(heap.allocate({3 * kMiB, 1}) == 97 * kMiB);
  CHECK(heap.allocate({1000, 1}) == heap.stride());  // small ones have another area
  CHECK(heap.allocate({3 * kMiB, 1}) == kNoOffset);  // 2 MiB are left, and 20 are mapped at a time
  for (const Offset offset : {20, 22, 60, 62, 67, 97}) CHECK(heap.free(offset * kMiB));
  CHECK(heap.free(heap.stride()));
  heap.trim();
  CHECK(arena.committed() == 0);
}

TEST_CASE("sizes and alignments that PyTorch's allocator does not know are refused") {
  ScriptedSegments segments;
  PyTorchHeap heap(segments);
  for (const Request& request : {Request{0, 1}, Request{1, 0}, Request{1, 3}, Request{1, 1024},
                                 Request{~Size{0}, 1}, Request{(Size{1} << 47) + 1, 1}}) {
    CHECK(heap.allocate(request) == kNoOffset);
  }
  CHECK(segments.held() == 0);
  CHECK(heap.allocate({1, 512}) == 0);
}

TEST_CASE("phases are timed when a table is given") {
  ScriptedSegments segments;
  PhaseTable phases;
  PyTorchHeap heap(segments, {}, nullptr, &phases);
  CHECK(heap.allocate({12 * kMiB, 1}) != kNoOffset);
  segments.refusals = 2;
  CHECK(heap.allocate({12 * kMiB, 1}) == kNoOffset);
  REQUIRE(phases.phases().size() == 8);
  CHECK(std::string(phases.phases()[0].name) == "1 search");
  CHECK(phases.phases()[0].calls == 2);
  CHECK(phases.phases()[3].calls == 3);
}

}  // namespace memoir
