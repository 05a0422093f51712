// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/workload.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/trace/lives.h"

namespace memoir {

namespace {

constexpr Size kFailureAlignment = 256;  // bytes: as importers give it to what was served

[[noreturn]] void fail(size_t event, const std::string& what) {
  throw Error("event " + std::to_string(event) + ": " + what);
}

}  // namespace

Workload::Workload(std::span<const Event> events, std::uint16_t device, Ask failures) : device_(device) {
  if (events.size() >= Size{1} << 31) throw Error("a trace of 2^31 events or more is not simulated");
  const Lives lives(events);
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> object_of(lives.size(), kNone);  // of each life: here
  std::vector<StreamId> streams;
  std::unordered_map<std::uint32_t, std::uint32_t> pools{{0, 0}};  // in the trace -> here
  steps_.reserve(events.size());
  const auto number_of = [&](StreamId stream) {
    const auto seen = std::find(streams.begin(), streams.end(), stream);
    const auto number = static_cast<StreamId>(seen - streams.begin());
    if (seen == streams.end()) streams.push_back(stream);
    return number;
  };
  const auto pool_number = [&](size_t event) {
    const auto [known, fresh] =
        pools.try_emplace(pool_of(events[event]), static_cast<std::uint32_t>(pools.size()));
    if (fresh && ++pools_ > kMostPools)
      fail(event, "a trace with more than " + std::to_string(kMostPools) + " pools is not simulated");
    return known->second;
  };
  const auto fails = [&](const Event& event) {
    return event.kind == EventKind::kOutOfMemory && event.device == device;
  };
  size_t last_failure = events.size();
  for (size_t i = 0; i < events.size(); ++i) {
    if (fails(events[i])) last_failure = i;
  }
  Size reserved = 0;
  bool begun = false;  // the history
  const auto begin = [&] {
    begun = true;
    start_steps_ = steps_.size();
    start_calls_ = device_calls_.size();
  };
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    const auto number = static_cast<std::uint32_t>(i);
    if (!begun && event.time > 0) begin();
    switch (event.kind) {
      case EventKind::kAllocate: {
        if (event.device != device) break;
        if (event.size == 0) {
          ++empty_;
          break;
        }
        object_of[lives.number(i)] = static_cast<std::uint32_t>(objects_.size());
        add({.id = event.object,
             .size = event.size,
             .alignment = Size{1} << event.alignment_log2,
             .site = event.site,
             .stream = number_of(event.stream),
             .thread = event.thread},
            event.time, number);
        break;
      }
      case EventKind::kFree: {
        if (lives.allocation(lives.number(i)).device != device) break;
        if (!begun) begin();
        const std::uint32_t object = object_of[lives.number(i)];
        if (object != kNone) end(object, event.time, number);
        break;
      }
      case EventKind::kAddress: {
        const std::uint32_t object = object_of[lives.number(i)];
        if (object == kNone) break;
        if (object >= addresses_.size()) addresses_.resize(object + 1, kNoOffset);
        addresses_[object] = event.size;
        if (pool_of(event) != 0) objects_[object].pool = pool_number(i);
        break;
      }
      case EventKind::kSegmentAllocate:
      case EventKind::kSegmentFree:
      case EventKind::kSegmentMap:
      case EventKind::kSegmentUnmap: {
        if (event.device != device) break;
        device_calls_.push_back({number,
                                 static_cast<std::uint32_t>(steps_.size()),
                                 event.kind,
                                 event.stream,
                                 {event.object, event.size},
                                 pool_of(event) == 0 ? 0 : pool_number(i)});
        reserved =
            device_calls_.back().gives() ? reserved + event.size : reserved - std::min(reserved, event.size);
        if (!begun && !device_calls_.back().gives()) {
          begin();
          --start_calls_;  // not this one
        }
        break;
      }
      case EventKind::kOutOfMemory: {
        if (!fails(event)) break;
        if (!begun) begin();
        Failure failure{.event = number,
                        .asked = event.size,
                        .live = live_,
                        .reserved = reserved,
                        .device_free = event.object,
                        .site = event.site,
                        .stream = event.stream,  // the trace's, until all that allocate are numbered
                        .pool = pool_of(event) == 0 ? 0 : pool_number(i)};
        const bool wanted = failures == Ask::kAll || (failures == Ask::kLast && i == last_failure);
        if (wanted && event.size != 0 && event.size < kHopeless) {
          failure.object = static_cast<std::uint32_t>(objects_.size());
          const Size served = largest_;
          add({.size = event.size,
               .alignment = kFailureAlignment,
               .site = event.site,
               .stream = number_of(event.stream),
               .pool = failure.pool},
              event.time, number);
          largest_ = served;
          end(failure.object, event.time, number);
        }
        failures_.push_back(failure);
        break;
      }
      default:
        break;
    }
  }
  if (!begun) begin();
  for (Object& object : objects_)
    object.end = std::min(object.end, static_cast<std::uint32_t>(steps_.size()));
  streams_ = streams.size();
  for (Failure& failure : failures_) failure.stream = number_of(failure.stream);
  for (DeviceCall& call : device_calls_) call.stream = number_of(call.stream);
}

void Workload::add(const Object& object, Tick time, std::uint32_t event) {
  const auto number = static_cast<std::uint32_t>(objects_.size());
  objects_.push_back(object);
  objects_.back().begin = static_cast<std::uint32_t>(steps_.size());
  objects_.back().end = ~0u;
  steps_.push_back({time, event, number, Kind::kAllocate});
  largest_ = std::max(largest_, object.size);
  live_ += object.size;
  most_live_ = std::max(most_live_, ++objects_live_);
  if (live_ > peak_live_) {
    peak_live_ = live_;
    peak_event_ = event;
  }
}

void Workload::end(std::uint32_t object, Tick time, std::uint32_t event) {
  objects_[object].end = static_cast<std::uint32_t>(steps_.size());
  live_ -= objects_[object].size;
  --objects_live_;
  steps_.push_back({time, event, object, Kind::kFree});
}

std::vector<Workload> Workload::by_pool() const {
  std::vector<Workload> parts;
  for (size_t pool = 0; pool < pools_; ++pool) {
    parts.push_back(Workload());
    parts.back().streams_ = streams_;
    parts.back().trace_ = trace_;
  }
  std::vector<std::uint32_t> numbers(objects_.size());  // there
  for (const Step& step : steps_) {
    const Object& object = objects_[step.object];
    Workload& part = parts[object.pool];
    if (step.kind == Kind::kAllocate) {
      numbers[step.object] = static_cast<std::uint32_t>(part.objects_.size());
      part.add(object, step.time, step.event);
    } else {
      part.end(numbers[step.object], step.time, step.event);
    }
  }
  for (Workload& part : parts) {
    for (Object& object : part.objects_)
      object.end = std::min(object.end, static_cast<std::uint32_t>(part.steps_.size()));
  }
  return parts;
}

Problem Workload::problem() const {
  Problem problem;
  problem.reserve(objects_.size());
  for (const Object& object : objects_) {
    problem.push_back(
        {{object.begin, std::max(object.end, object.begin + 1)}, object.size, object.alignment});
  }
  return problem;
}

std::vector<std::uint16_t> devices_of(std::span<const Event> events) {
  std::vector<bool> seen(1 << 16);
  for (const Event& event : events) {
    if (event.kind == EventKind::kAllocate || event.kind == EventKind::kOutOfMemory)
      seen[event.device] = true;
  }
  std::vector<std::uint16_t> devices;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) devices.push_back(static_cast<std::uint16_t>(i));
  }
  if (devices.empty()) devices.push_back(0);
  return devices;
}

}  // namespace memoir
