// SPDX-License-Identifier: Apache-2.0
#include "memoir/exchange/timeline.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <vector>

#include "memoir/trace/object_table.h"

namespace memoir {

namespace {

struct Device {
  std::set<StreamId> streams;  // that allocate
  std::map<StreamId, Size> live;
  Size total = 0, reserved = 0;
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

  ObjectTable table;  // object -> its allocation's index; tag: its lane
  std::uint64_t objects = 0;
  const auto changed = [&](const Event& event, StreamId stream, Size bytes, bool more) {
    Device& device = devices[event.device];
    Size& live = device.live[stream];
    live = more ? live + bytes : live - bytes;
    device.total = more ? device.total + bytes : device.total - bytes;
    sink.live(event.device, std::nullopt, event.time, device.total);
    if (device.streams.size() > 1) sink.live(event.device, stream, event.time, live);
  };
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    switch (event.kind) {
      case EventKind::kAllocate: {
        ++objects;
        Device& device = devices[event.device];
        std::uint32_t lane = device.lanes;
        if (device.free_lanes.empty()) {
          ++device.lanes;
        } else {
          lane = device.free_lanes.top();
          device.free_lanes.pop();
        }
        table.find(event.object) = {event.object, ObjectTable::State::kLive, lane, i};
        table.added();
        const bool addressed = i + 1 < events.size() && events[i + 1].kind == EventKind::kAddress &&
                               events[i + 1].object == event.object;
        changed(event, event.stream, event.size, true);
        sink.begins(event, lane, addressed ? std::optional<Offset>(events[i + 1].size) : std::nullopt);
        break;
      }
      case EventKind::kFree: {
        ObjectTable::Entry& entry = table.find(event.object);
        const Event& allocation = events[entry.value];
        changed(event, allocation.stream, allocation.size, false);
        sink.ends(allocation, entry.tag, event.time, true);
        devices[event.device].free_lanes.push(entry.tag);
        entry.state = ObjectTable::State::kFreed;
        break;
      }
      case EventKind::kFreeRequested:
        sink.free_requested(event, table.find(event.object).tag);
        break;
      case EventKind::kSegmentAllocate:
      case EventKind::kSegmentMap:
        sink.reserved(event.device, event.time, devices[event.device].reserved += event.size);
        break;
      case EventKind::kSegmentFree:
      case EventKind::kSegmentUnmap:
        sink.reserved(event.device, event.time, devices[event.device].reserved -= event.size);
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
  const Tick end = events.empty() ? 0 : events.back().time;
  for (const Event& event : events) {
    if (event.kind != EventKind::kAllocate) continue;
    const ObjectTable::Entry& entry = table.find(event.object);
    if (entry.state == ObjectTable::State::kLive) sink.ends(event, entry.tag, end, false);
  }
  return objects;
}

}  // namespace memoir
