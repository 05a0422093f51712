// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "memoir/device/device_runtime.h"

namespace memoir {

DeviceView DeviceRuntime::view(DeviceDetail detail) const {
  const std::lock_guard lock(mutex_);
  return view_locked(detail);
}

DeviceView DeviceRuntime::view_locked(DeviceDetail detail) const {
  DeviceView view{.device = device_.ordinal(),
                  .name = device_.name(),
                  .policy = policy_.text,
                  .total = device_.total(),
                  .free_now = 0,
                  .cap = device_.cap(),
                  .held = device_.held(),
                  .spare = device_.spare(),
                  .in_capture = !routes_.empty(),
                  .stats = stats_,
                  .device_calls = device_.counts(),
                  .stream_calls = streams_.counts(),
                  .loops = {},
                  .last_failure = device_.last_failure(),
                  .objects = {},
                  .segments = {},
                  .history = {}};
  for (const Pool& pool : pools_) {
    if (pool.heap == nullptr) continue;
    const LearningHeap::Counters counters = pool.heap->plans();
    view.loops.plans += counters.plans;
    view.loops.planned += counters.planned;
    view.loops.departed += counters.departed;
    view.loops.dropped += counters.dropped;
  }
  if (detail == DeviceDetail::kNumbers) return view;
  view.free_now = device_.free_now();
  list_objects(view);
  if (detail == DeviceDetail::kHistory && !history_.empty()) {
    const std::uint64_t count = std::min<std::uint64_t>(history_count_, history_.size());
    for (std::uint64_t i = history_count_ - count; i < history_count_; ++i) {
      view.history.push_back(history_[i % history_.size()]);
    }
  }
  return view;
}

void DeviceRuntime::list_objects(DeviceView& view) const {
  for (Index index = 1; index < objects_.size(); ++index) {
    const Object& object = objects_[index];
    if (by_address_.find(object.address) != index) continue;
    const Pool& pool = pools_[object.pool];
    view.objects.push_back({object.address, object.size,
                            pool.heap->heap().size_of(pool.heap->offset(object.address)),
                            streams_.handle(object.stream), object.site, pool.id, object.pending});
  }
  for (const Pool& pool : pools_) {
    if (pool.heap == nullptr) continue;
    const cuda::Stream stream = pool.stream == kAnyStream ? nullptr : streams_.handle(pool.stream);
    if (const CudaArena* const arena = pool.heap->mapped()) {
      arena->for_each_piece([&](Range piece) {
        const cuda::Address address = arena->base() + piece.begin;
        if (!view.segments.empty() && view.segments.back().mapped &&
            view.segments.back().address + view.segments.back().size == address) {
          view.segments.back().size += piece.size;
        } else {
          view.segments.push_back({address, piece.size, true, pool.id, stream});
        }
      });
    }
    if (const CudaSegments* const segments = pool.heap->plain()) {
      segments->for_each_segment([&](Range range) {
        view.segments.push_back({pool.heap->address(range.begin), range.size, false, pool.id, stream});
      });
    }
  }
  const auto by_address = [](const auto& a, const auto& b) { return a.address < b.address; };
  std::sort(view.objects.begin(), view.objects.end(), by_address);
  std::sort(view.segments.begin(), view.segments.end(), by_address);
}

void DeviceRuntime::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (DeviceStat* stat : {&stats_.objects, &stats_.allocated_bytes, &stats_.active_objects,
                           &stats_.active_bytes, &stats_.reserved_bytes, &stats_.segments}) {
    stat->peak = stat->current;
  }
  device_.reset_peak();
}

}  // namespace memoir
