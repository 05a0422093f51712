// SPDX-License-Identifier: Apache-2.0
//
// Recorded device allocations, replayed on any heap once or as a loop, with every use of memory noted for the
// checker of stream order.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "memoir/heap/heap.h"
#include "memoir/simulate/memory/stream_clock.h"
#include "memoir/simulate/workload.h"
#include "support/gpu_trace.h"

namespace memoir::run {

struct DeviceObject {
  Size size = 0;
  StreamId stream = 0;
  bool before = false;  // lived before the history began
};
struct DeviceStep {
  ObjectId object = 0;
  bool allocates = false;
};

/// What one device was asked for.
struct DeviceRun {
  std::string name;
  std::vector<DeviceObject> objects;  // by id
  std::vector<DeviceStep> setup;      // what lived before the history
  std::vector<DeviceStep> history;
  Size peak = 0;  // bytes live at most

  /// The whole as events of a trace.
  std::vector<Event> events() const {
    std::vector<Event> events;
    for (const auto* part : {&setup, &history}) {
      for (const DeviceStep& step : *part) {
        Event event;
        event.kind = step.allocates ? EventKind::kAllocate : EventKind::kFree;
        event.object = step.object;
        event.size = step.allocates ? objects[step.object].size : 0;
        event.stream = objects[step.object].stream;
        event.time = events.size();
        events.push_back(event);
      }
    }
    return events;
  }
};

inline DeviceRun device_run(const std::string& name) {
  const gpu_trace::GpuTrace trace = gpu_trace::read(MEMOIR_TEST_DATA "/gpu/" + name + ".trace");
  DeviceRun run{name, std::vector<DeviceObject>(trace.objects), {}, {}, 0};
  for (const gpu_trace::Object& object : trace.live) {
    run.objects[object.id] = {object.size, object.stream, true};
    run.setup.push_back({object.id, true});
  }
  for (const gpu_trace::Event& event : trace.events) {
    if (event.is_allocate()) run.objects[event.object] = {event.size, event.stream, false};
    if (event.is_allocate() || event.is_free()) run.history.push_back({event.object, event.is_allocate()});
  }
  Size live = 0;
  for (const auto* part : {&run.setup, &run.history}) {
    for (const DeviceStep& step : *part) {
      const Size size = run.objects[step.object].size;
      live = step.allocates ? live + size : live - size;
      run.peak = std::max(run.peak, live);
    }
  }
  return run;
}

inline const std::vector<std::string>& device_run_names() {
  static const std::vector<std::string> names = {"bcrafton_cs336.d0",
                                                 "constructorsun_codeloc.d0",
                                                 "constructorsun_codeloc.d2",
                                                 "magma27_cs336.d0",
                                                 "shreyansh_profile_grad.d0",
                                                 "silmont_fwd_fp32_128.d0",
                                                 "silmont_mem.d0",
                                                 "gpt2m_varlen",
                                                 "llama7b_lora_zero3_2stream"};
  return names;
}

/// Drives a heap; what it does on streams goes into `clock` when there is one.
class DeviceDriver {
 public:
  DeviceDriver(const DeviceRun& run, Heap& heap, StreamClock* clock = nullptr)
      : run_(run), heap_(heap), clock_(clock), places_(run.objects.size(), kNoOffset) {}

  /// False at the first request that is refused.
  bool take(const std::vector<DeviceStep>& steps) {
    for (const DeviceStep& step : steps) {
      if (step.allocates ? !allocate(step.object) : !free(step.object)) return false;
    }
    return true;
  }
  /// The history once more, after which what lived before it lives again, and nothing else.
  bool iterate() {
    if (!take(run_.history)) return false;
    for (ObjectId object = 0; object < places_.size(); ++object) {
      if (!run_.objects[object].before && places_[object] != kNoOffset && !free(object)) return false;
    }
    for (const DeviceStep& step : run_.setup) {
      if (places_[step.object] == kNoOffset && !allocate(step.object)) return false;
    }
    return true;
  }

 private:
  bool allocate(ObjectId object) {
    const auto& [size, stream, before] = run_.objects[object];
    if (size == 0) return true;
    const Offset offset = heap_.allocate({.size = size, .stream = stream});
    places_[object] = offset;
    if (offset == kNoOffset) return false;
    if (clock_ != nullptr) clock_->note_allocate({offset, size}, stream);
    return true;
  }
  bool free(ObjectId object) {
    if (run_.objects[object].size == 0) return true;
    if (clock_ != nullptr) clock_->note_free(places_[object]);
    const bool freed = heap_.free(places_[object]);
    places_[object] = kNoOffset;
    return freed;
  }

  const DeviceRun& run_;
  Heap& heap_;
  StreamClock* clock_;
  std::vector<Offset> places_;
};

}  // namespace memoir::run
