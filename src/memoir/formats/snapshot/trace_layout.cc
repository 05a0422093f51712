// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/snapshot/trace_layout.h"

#include <algorithm>

#include "memoir/arena/arena.h"
#include "memoir/base/error.h"
#include "memoir/heap/plain/span_heap.h"

namespace memoir {

namespace {

constexpr Size kSegmentAlignment = 2 * kMiB;
constexpr Size kLargestGap = 4 * kMiB;  // between two objects of one made-up segment

/// Addresses without memory: nothing is ever committed that could run out.
class Addresses final : public Arena {
 public:
  Size capacity() const noexcept override { return Size{1} << 47; }
  Size granule() const noexcept override { return 512; }
  bool commit(Range) noexcept override { return true; }
  void decommit(Range) noexcept override {}
  Size committed() const noexcept override { return 0; }
};

}  // namespace

TraceLayout::TraceLayout(const Trace& trace) : trace_(trace), lives_(trace.events()) {
  const std::span<const Event> events = trace.events();
  objects_.reserve(lives_.size());
  std::vector<bool> has_address;
  for (std::uint32_t number = 0; number < lives_.size(); ++number) {
    const Life life = lives_[number];
    has_address.push_back(life.address != kNoOffset);
    objects_.push_back({has_address[number] ? life.address : 0, lives_.allocation(number).size, life.begin,
                        life.end, life.is_free_requested, life.pool});
  }
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (has_text(event) || event.kind == EventKind::kPassBegin || event.kind == EventKind::kPassEnd ||
        event.kind == EventKind::kPool) {
      continue;
    }
    if (event.device >= devices_.size()) devices_.resize(size_t{event.device} + 1);
    Device& device = devices_[event.device];
    if (event.kind == EventKind::kAddress) continue;
    // What was there before stands at time 0, and nothing ends there.
    const bool begins = event.kind == EventKind::kAllocate || event.kind == EventKind::kFreeRequested ||
                        event.kind == EventKind::kSegmentAllocate || event.kind == EventKind::kSegmentMap;
    if (event.time == 0 && begins && device.history == device.events.size()) ++device.history;
    device.events.push_back(i);
  }
  for (std::uint32_t i = 0; i < objects_.size(); ++i) {
    if (!has_address[i] && objects_[i].size != 0)
      devices_[events[objects_[i].allocated].device].recorded = false;
  }
  for (Device& device : devices_) {
    if (!device.recorded) replay(device);
    const bool has_segments =
        std::any_of(device.events.begin(), device.events.end(),
                    [&](std::uint32_t index) { return is_segment(events[index].kind); });
    if (!has_segments || !device.recorded) make_segments(device);
  }
}

void TraceLayout::replay(Device& device) {
  Addresses addresses;
  SpanHeap heap(addresses);
  for (const std::uint32_t index : device.events) {
    const Event& event = trace_.events()[index];
    if (event.size == 0 && event.kind == EventKind::kAllocate) continue;
    if (event.kind == EventKind::kAllocate) {
      Object& object = objects_[lives_.number(index)];
      const Offset offset =
          heap.allocate({event.size, std::max(Size{1} << event.alignment_log2, Size{512}), event.site});
      if (offset == kNoOffset) {
        throw Error("object " + std::to_string(event.object) + " of " + std::to_string(event.size) +
                    " bytes has no address, and does not fit into the 2^47 that a device is given here");
      }
      object.address = kBase + offset;
      object.pool = 0;
    } else if (event.kind == EventKind::kFree) {
      const Object& object = objects_[lives_.number(index)];
      if (object.size != 0) heap.free(object.address - kBase);
    }
  }
}

void TraceLayout::make_segments(Device& device) {
  for (const std::uint32_t index : device.events) {
    if (trace_.events()[index].kind != EventKind::kAllocate) continue;
    const Object& object = objects_[lives_.number(index)];
    if (object.size == 0) continue;
    const std::uint64_t begin = align_down(object.address, kSegmentAlignment);
    device.segments.push_back({begin, align_up(object.address + object.size, kSegmentAlignment) - begin});
  }
  std::sort(device.segments.begin(), device.segments.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (const Range& range : device.segments) {
    Range& last = device.segments[kept == 0 ? 0 : kept - 1];
    if (kept != 0 && range.begin <= last.end() + kLargestGap) {
      last.size = std::max(last.end(), range.end()) - last.begin;
    } else {
      device.segments[kept++] = range;
    }
  }
  device.segments.resize(kept);
}

}  // namespace memoir
