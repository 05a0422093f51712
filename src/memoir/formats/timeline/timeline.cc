// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/timeline/timeline.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <vector>

#include "memoir/trace/objects/lives.h"

namespace memoir {

namespace {

constexpr Tick kMoment = 1'000;  // nanoseconds

struct Counter {
  Size bytes = 0;
  std::optional<Tick> told;  // when last

  void change(Size by, bool more, Tick time) {
    bytes = more ? bytes + by : bytes - by;
    told = time;
  }
  bool ends_before(Tick time) const { return told && *told < time; }
};

struct Device {
  std::set<StreamId> streams;  // that allocate
  std::map<StreamId, Counter> live;
  Counter total, reserved;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_lanes;
  std::uint32_t lanes = 0;
};

}  // namespace

std::uint64_t walk_timeline(const Trace& trace, TimelineSink& sink) {
  const std::span<const Event> events = trace.events();
  std::map<std::uint16_t, Device> devices;
  for (const Event& event : events) {
    if (event.kind == EventKind::kAllocate) devices[event.device].streams.insert(event.stream);
    else if (is_segment(event.kind) || event.kind == EventKind::kOutOfMemory) devices[event.device];
  }
  for (auto& [number, device] : devices) sink.device(number, device.streams.size() > 1);

  const Lives lives(events);
  std::vector<std::uint32_t> lanes(lives.size());
  const auto changed = [&](const Event& event, StreamId stream, Size bytes, bool more) {
    Device& device = devices[event.device];
    device.total.change(bytes, more, event.time);
    sink.live(event.device, std::nullopt, event.time, device.total.bytes);
    if (device.streams.size() < 2) return;
    device.live[stream].change(bytes, more, event.time);
    sink.live(event.device, stream, event.time, device.live[stream].bytes);
  };
  const auto reserved = [&](const Event& event, bool more) {
    Counter& counter = devices[event.device].reserved;
    counter.change(event.size, more, event.time);
    sink.reserved(event.device, event.time, counter.bytes);
  };
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    switch (event.kind) {
      case EventKind::kAllocate: {
        Device& device = devices[event.device];
        std::uint32_t lane = device.lanes;
        if (device.free_lanes.empty()) {
          ++device.lanes;
        } else {
          lane = device.free_lanes.top();
          device.free_lanes.pop();
        }
        lanes[lives.number(i)] = lane;
        const bool addressed = i + 1 < events.size() && events[i + 1].kind == EventKind::kAddress &&
                               events[i + 1].object == event.object;
        changed(event, event.stream, event.size, true);
        sink.begins(event, lane, addressed ? &events[i + 1] : nullptr);
        break;
      }
      case EventKind::kFree: {
        const std::uint32_t number = lives.number(i);
        const Event& allocation = lives.allocation(number);
        changed(event, allocation.stream, allocation.size, false);
        sink.ends(allocation, lanes[number], event.time, true);
        devices[event.device].free_lanes.push(lanes[number]);
        break;
      }
      case EventKind::kFreeRequested: {
        const std::uint32_t number = lives.number(i);
        sink.free_requested(lives.allocation(number), lanes[number], event.time);
        break;
      }
      case EventKind::kSegmentAllocate:
      case EventKind::kSegmentMap:
        reserved(event, true);
        break;
      case EventKind::kSegmentFree:
      case EventKind::kSegmentUnmap:
        reserved(event, false);
        break;
      case EventKind::kOutOfMemory:
        sink.out_of_memory(event);
        break;
      case EventKind::kPassBegin:
      case EventKind::kPassEnd:
        sink.pass(event);
        break;
      default:
        break;
    }
  }
  // A snapshot without history happens at one moment: for a microsecond, or nothing would be seen.
  const Tick last = events.empty() ? 0 : events.back().time;
  const Tick end = last == 0 ? kMoment : last;
  // Once more at the end: chrome://tracing draws nothing after a counter's last value.
  for (const auto& [number, device] : devices) {
    if (device.total.ends_before(end)) sink.live(number, std::nullopt, end, device.total.bytes);
    for (const auto& [stream, counter] : device.live) {
      if (counter.ends_before(end)) sink.live(number, stream, end, counter.bytes);
    }
    if (device.reserved.ends_before(end)) sink.reserved(number, end, device.reserved.bytes);
  }
  for (std::uint32_t number = 0; number < lives.size(); ++number) {
    if (lives[number].end == Life::kNever) sink.ends(lives.allocation(number), lanes[number], end, false);
  }
  return lives.size();
}

}  // namespace memoir
