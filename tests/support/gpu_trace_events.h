// SPDX-License-Identifier: Apache-2.0
//
// A text trace of a GPU allocator as the events of a memoir trace, for tests and benchmarks: what was live
// before the history first, then its allocations and frees. What the recorded allocator asked of the device
// is left out.
#pragma once

#include <vector>

#include "memoir/trace/event.h"
#include "support/gpu_trace.h"

namespace memoir::gpu_trace {

inline std::vector<memoir::Event> events_of(const GpuTrace& trace) {
  std::vector<memoir::Event> events;
  const auto add = [&](EventKind kind, ObjectId object, Size size, StreamId stream) {
    memoir::Event event;
    event.kind = kind;
    event.object = object;
    event.size = size;
    event.stream = stream;
    event.time = events.size();
    events.push_back(event);
  };
  for (const Object& object : trace.live) add(EventKind::kAllocate, object.id, object.size, object.stream);
  for (const Event& event : trace.events) {
    if (event.is_allocate()) add(EventKind::kAllocate, event.object, event.size, event.stream);
    if (event.is_free()) add(EventKind::kFree, event.object, 0, 0);
  }
  return events;
}

}  // namespace memoir::gpu_trace
