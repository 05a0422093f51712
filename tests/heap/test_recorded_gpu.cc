// SPDX-License-Identifier: Apache-2.0
//
// Histories that PyTorch's allocator recorded on GPUs (tests/data/gpu), allocated again: every object has to
// get the recorded address, and every call to the device to come at the recorded moment with the recorded
// size.
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/heap/peers/pytorch/expandable_heap.h"
#include "memoir/heap/peers/pytorch/pytorch_heap.h"
#include "support/gpu_trace.h"

namespace memoir {

namespace {

using gpu_trace::Event;
using gpu_trace::GpuTrace;

/// A call to the device: a segment or a range of memory, had or given back.
struct DeviceCall {
  Event::Kind kind;
  Range range;
  bool operator==(const DeviceCall&) const = default;
};

GpuTrace read_recorded(const std::string& name) {
  return gpu_trace::read(MEMOIR_TEST_DATA "/gpu/" + name + ".trace");
}

/// Gives the segments that the device gave then, where their sizes agree.
class RecordedSegments final : public Segments {
 public:
  Offset take(Size size) noexcept override {
    Offset offset = fresh_;
    if (!given.empty() && given.front().size == size) {
      offset = given.front().begin;
      given.pop_front();
    } else {
      fresh_ += align_up(size, 2 * kMiB);
    }
    held_ += size;
    calls.push_back({Event::Kind::kSegmentAllocate, {offset, size}});
    return offset;
  }
  void give_back(Range segment) noexcept override {
    held_ -= segment.size;
    calls.push_back({Event::Kind::kSegmentFree, segment});
  }
  Size held() const noexcept override { return held_; }
  void hold(Size size) { held_ += size; }

  std::deque<Range> given;  // by the device, from now on
  std::vector<DeviceCall> calls;

 private:
  Offset fresh_ = Offset{1} << 50;  // where no recorded segment lies
  Size held_ = 0;
};

/// Addresses without end; notes what is mapped.
class NotingArena final : public Arena {
 public:
  Size capacity() const noexcept override { return Size{1} << 46; }
  Size granule() const noexcept override { return 2 * kMiB; }
  bool commit(Range range) noexcept override {
    calls.push_back({Event::Kind::kMap, range});
    committed_ += range.size;
    return true;
  }
  void decommit(Range range) noexcept override {
    calls.push_back({Event::Kind::kUnmap, range});
    committed_ -= range.size;
  }
  Size committed() const noexcept override { return committed_; }

  std::vector<DeviceCall> calls;

 private:
  Size committed_ = 0;
};

struct Agreement {
  size_t objects = 0, same_addresses = 0;
  size_t calls = 0, same_calls = 0;  // of the recorded history
  size_t other_calls = 0;            // that the heap made and the history did not
};

/// Follows the history. `address(offset)` is where an offset of the heap lies among the recorded addresses,
/// `calls` what the heap asked of its device, `upcoming(calls)` hears what the device will answer.
template <class Address, class Upcoming>
Agreement follow(const GpuTrace& trace, Heap& heap, std::vector<DeviceCall>& calls,
                 std::map<ObjectId, Offset> live, Address address, Upcoming upcoming) {
  Agreement agreement;
  std::vector<DeviceCall> recorded;
  const auto compare_calls = [&] {
    agreement.calls += recorded.size();
    size_t i = 0;
    for (; i < calls.size() && i < recorded.size(); ++i) {
      agreement.same_calls += calls[i].kind == recorded[i].kind &&
                              calls[i].range.size == recorded[i].range.size &&
                              address(calls[i].range.begin) == recorded[i].range.begin;
    }
    agreement.other_calls += calls.size() - i;
    recorded.clear();
    calls.clear();
  };
  for (const Event& event : trace.events) {
    if (event.is_allocate()) {
      upcoming(recorded);
      const Offset offset = heap.allocate({event.size, 1, kNoSite, event.stream});
      compare_calls();
      live[event.object] = offset;
      ++agreement.objects;
      agreement.same_addresses += offset != kNoOffset && address(offset) == event.address;
    } else if (event.is_free()) {
      if (!recorded.empty()) heap.trim();  // calls to the device for no request: the cache was emptied
      compare_calls();
      heap.free(live.at(event.object));
      live.erase(event.object);
    } else if (event.kind != Event::Kind::kOutOfMemory) {
      recorded.push_back({event.kind, {event.address, event.size}});
    }
  }
  if (!recorded.empty()) heap.trim();
  compare_calls();
  return agreement;
}

Agreement follow_default(const std::string& name) {
  const GpuTrace trace = read_recorded(name);
  RecordedSegments segments;
  PyTorchHeap heap(segments);
  std::map<ObjectId, Offset> live;
  size_t next = 0;
  for (const Range& segment : trace.segments) {
    // What was asked is recorded, not the block: in large segments, up to 1 MiB that follows an object is its
    // own, since no smaller rest is ever split off.
    const bool small = segment.size == 2 * kMiB;
    std::vector<RestoredObject> objects;
    for (; next < trace.live.size() && segment.overlaps({trace.live[next].address, 1}); ++next) {
      const gpu_trace::Object& object = trace.live[next];
      live[object.id] = object.address;
      objects.push_back({{object.address, align_up(object.size, 512)}, object.size});
    }
    for (size_t i = 0; i < objects.size() && !small; ++i) {
      const Offset end = i + 1 < objects.size() ? objects[i + 1].block.begin : segment.end();
      const Size rest = end - objects[i].block.end();
      if (rest <= kMiB) objects[i].block.size += rest;
    }
    REQUIRE(heap.restore(segment, 0, objects));
    segments.hold(segment.size);
  }
  REQUIRE(next == trace.live.size());
  REQUIRE(heap.reserved() == segments.held());

  const Agreement agreement = follow(
      trace, heap, segments.calls, live, [](Offset offset) { return offset; },
      [&](const std::vector<DeviceCall>& calls) {
        segments.given.clear();
        for (const DeviceCall& call : calls) {
          if (call.kind == Event::Kind::kSegmentAllocate) segments.given.push_back(call.range);
        }
      });
  CHECK(heap.reserved() == segments.held());
  return agreement;
}

Agreement follow_expandable(const std::string& name) {
  const GpuTrace trace = read_recorded(name);
  NotingArena arena;
  constexpr Size kDevice = 80 * kGiB;
  ExpandableHeap heap(arena, {.device_memory = kDevice});
  REQUIRE(heap.ok());
  // An area of ours lies where the first memory was mapped into its counterpart.
  std::map<Offset, Offset> areas;
  std::vector<DeviceCall> upcoming;
  const auto address = [&](Offset offset) {
    auto area = areas.upper_bound(offset);
    if (area != areas.begin() && offset - std::prev(area)->first < kDevice + kDevice / 8) {
      --area;
    } else {
      area = areas.emplace(offset, upcoming.empty() ? kNoOffset : upcoming.front().range.begin).first;
    }
    return area->second + (offset - area->first);
  };
  const Agreement agreement = follow(trace, heap, arena.calls, {}, address,
                                     [&](const std::vector<DeviceCall>& calls) { upcoming = calls; });
  CHECK(areas.size() == 2);
  CHECK(heap.reserved() == arena.committed());
  return agreement;
}

/// Of one recording: what it holds is counted by hand, and all of it shall agree.
struct Recording {
  std::string name;
  size_t objects, calls;
};

void expect_same(const Recording& recording, const Agreement& agreement) {
  CAPTURE(recording.name);
  CHECK(agreement.objects == recording.objects);
  CHECK(agreement.same_addresses == recording.objects);
  CHECK(agreement.calls == recording.calls);
  CHECK(agreement.same_calls == recording.calls);
  CHECK(agreement.other_calls == 0);
  MESSAGE(recording.name << ": " << agreement.same_addresses << " of " << agreement.objects << " addresses, "
                         << agreement.same_calls << " of " << agreement.calls << " calls of the device");
}

}  // namespace

TEST_CASE(
    "every object of histories recorded on GPUs gets its recorded address, and every segment comes when it "
    "did") {
  const Recording recordings[] = {{"bcrafton_cs336.d0", 2162, 0},
                                  {"magma27_cs336.d0", 1721, 0},
                                  {"silmont_fwd_fp32_128.d0", 681, 0},
                                  {"shreyansh_profile_grad.d0", 12, 7},
                                  {"silmont_mem.d0", 36, 9}};
  for (const Recording& recording : recordings) expect_same(recording, follow_default(recording.name));
}

TEST_CASE(
    "the same with expandable segments: addresses in their areas, and the size and place of what is mapped") {
  const Recording recordings[] = {{"constructorsun_codeloc.d0", 2434, 175},
                                  {"constructorsun_codeloc.d2", 392, 78}};
  for (const Recording& recording : recordings) expect_same(recording, follow_expandable(recording.name));
}

}  // namespace memoir
