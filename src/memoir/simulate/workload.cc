// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/workload.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/trace/objects/lives.h"
#include "memoir/trace/objects/object_index.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

namespace {

constexpr std::uint8_t kFailureAlignmentLog2 = 8;  // 256 bytes: as importers give it to what was served

[[noreturn]] void fail(size_t event, const std::string& what) {
  throw Error("event " + std::to_string(event) + ": " + what);
}

}  // namespace

/// Reads the events of one device, in order.
class Workload::Reader {
 public:
  Reader(Workload& workload, std::span<const Event> events, Ask failures);

  void read(size_t event);
  void finish();

 private:
  // What an object of the trace is here, instead of its number.
  static constexpr std::uint32_t kFreed = ~std::uint32_t{0}, kLeftOut = kFreed - 1;

  void allocate(const Event& event, std::uint32_t index);
  std::uint32_t& live_object(const Event& event, size_t index);
  void free(const Event& event, std::uint32_t index);
  void device_call(const Event& event, std::uint32_t index);
  void fail_request(const Event& event, std::uint32_t index);
  void begin_history();
  StreamId number_of(StreamId stream);
  std::uint16_t pool_number(std::uint32_t pool, size_t event);
  bool fails(const Event& event) const {
    return event.kind == EventKind::kOutOfMemory && event.device == workload_.device_;
  }

  Workload& workload_;
  const std::span<const Event> events_;
  const Ask failures_;
  size_t last_failure_;
  // Of all devices, in the order of their allocations.
  ObjectIndex numbers_;
  std::vector<ObjectId> ids_;
  std::vector<std::uint32_t> objects_;
  std::vector<StreamId> streams_;
  std::unordered_map<std::uint32_t, std::uint16_t> pools_{{0, 0}};  // in the trace -> here
  Size reserved_ = 0;
  bool begun_ = false;  // the history
};

Workload::Reader::Reader(Workload& workload, std::span<const Event> events, Ask failures)
    : workload_(workload), events_(events), failures_(failures), last_failure_(events.size()) {
  if (events.size() >= Size{1} << 31) throw Error("a trace of 2^31 events or more is not simulated");
  size_t all = 0, steps = 0, allocations = 0;  // exactly as much memory as there is to hold
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    const bool here = event.device == workload.device_;
    if (fails(event)) {
      last_failure_ = i;
      ++allocations;
      steps += 2;
    } else if (event.kind == EventKind::kAllocate) {
      ++all;
      allocations += here;
      steps += here;
    } else if (event.kind == EventKind::kFree) {
      steps += here;
    }
  }
  ids_.reserve(all);
  objects_.reserve(all);
  workload.steps_.reserve(steps);
  workload.objects_.reserve(allocations);
}

StreamId Workload::Reader::number_of(StreamId stream) {
  const auto seen = std::find(streams_.begin(), streams_.end(), stream);
  const auto number = static_cast<StreamId>(seen - streams_.begin());
  if (seen == streams_.end()) streams_.push_back(stream);
  return number;
}

std::uint16_t Workload::Reader::pool_number(std::uint32_t pool, size_t event) {
  if (pool == 0) return 0;
  const auto [known, fresh] = pools_.try_emplace(pool, static_cast<std::uint16_t>(pools_.size()));
  if (fresh && ++workload_.pools_ > kMostPools)
    fail(event, "a trace with more than " + std::to_string(kMostPools) + " pools is not simulated");
  return known->second;
}

void Workload::Reader::begin_history() {
  begun_ = true;
  workload_.start_steps_ = workload_.steps_.size();
  workload_.start_calls_ = workload_.device_calls_.size();
}

void Workload::Reader::read(size_t index) {
  const Event& event = events_[index];
  const auto number = static_cast<std::uint32_t>(index);
  if (!begun_ && event.time > 0) begin_history();
  switch (event.kind) {
    case EventKind::kAllocate:
      allocate(event, number);
      break;
    case EventKind::kFree:
      free(event, number);
      break;
    case EventKind::kFreeRequested:
      live_object(event, index);
      break;
    case EventKind::kAddress: {
      const std::uint32_t object = live_object(event, index);
      if (object == kLeftOut) break;
      std::vector<Offset>& addresses = workload_.addresses_;
      if (object >= addresses.size()) addresses.resize(object + 1, kNoOffset);
      addresses[object] = event.size;
      if (pool_of(event) != 0) workload_.objects_[object].pool = pool_number(pool_of(event), index);
      break;
    }
    case EventKind::kSegmentAllocate:
    case EventKind::kSegmentFree:
    case EventKind::kSegmentMap:
    case EventKind::kSegmentUnmap:
      if (event.device == workload_.device_) device_call(event, number);
      break;
    case EventKind::kOutOfMemory:
      if (fails(event)) fail_request(event, number);
      break;
    default:
      break;
  }
}

void Workload::Reader::allocate(const Event& event, std::uint32_t index) {
  const auto id_of = [&](std::uint32_t number) { return ids_[number]; };
  if (numbers_.find(event.object, id_of) != ObjectIndex::kNone)
    throw Error(name_event(events_, index) + " is allocated twice; object ids are never reused");
  numbers_.add(event.object, static_cast<std::uint32_t>(ids_.size()), id_of);
  ids_.push_back(event.object);
  objects_.push_back(kLeftOut);
  if (event.device != workload_.device_) return;
  if (event.size == 0) {
    ++workload_.empty_;
    return;
  }
  objects_.back() = static_cast<std::uint32_t>(workload_.objects_.size());
  workload_.add({.id = event.object,
                 .size = event.size,
                 .site = event.site,
                 .stream = number_of(event.stream),
                 .thread = static_cast<std::uint16_t>(event.thread),
                 .alignment_log2 = event.alignment_log2},
                event.time, index);
}

/// What is here of an object that has to be live.
std::uint32_t& Workload::Reader::live_object(const Event& event, size_t index) {
  const bool frees = event.kind == EventKind::kFree, asks = event.kind == EventKind::kFreeRequested;
  const std::uint32_t number = numbers_.find(event.object, [&](std::uint32_t known) { return ids_[known]; });
  if (number == ObjectIndex::kNone) {
    throw Error(name_event(events_, index) + (frees  ? " is freed but was never allocated"
                                              : asks ? " is released but was never allocated"
                                                     : " gets an address but was never allocated"));
  }
  if (objects_[number] == kFreed) {
    throw Error(name_event(events_, index) + (frees  ? " is freed twice"
                                              : asks ? " is released after its free"
                                                     : " gets an address after its free"));
  }
  return objects_[number];
}

void Workload::Reader::free(const Event& event, std::uint32_t index) {
  std::uint32_t& object = live_object(event, index);
  if (event.device == workload_.device_ && !begun_) begin_history();
  if (object != kLeftOut) {
    workload_.objects_[object].freed_on = static_cast<std::uint16_t>(event.thread);
    workload_.end(object, event.time, index);
  }
  object = kFreed;
}

void Workload::Reader::device_call(const Event& event, std::uint32_t index) {
  std::vector<DeviceCall>& calls = workload_.device_calls_;
  calls.push_back({index,
                   static_cast<std::uint32_t>(workload_.steps_.size()),
                   event.kind,
                   event.stream,
                   {event.object, event.size},
                   pool_number(pool_of(event), index)});
  reserved_ = calls.back().gives() ? reserved_ + event.size : reserved_ - std::min(reserved_, event.size);
  if (begun_ || calls.back().gives()) return;
  begin_history();
  --workload_.start_calls_;  // not this one
}

void Workload::Reader::fail_request(const Event& event, std::uint32_t index) {
  if (!begun_) begin_history();
  Failure failure{.event = index,
                  .asked = event.size,
                  .live = workload_.live_,
                  .reserved = reserved_,
                  .device_free = event.object,
                  .site = event.site,
                  .stream = event.stream,  // the trace's, until all that allocate are numbered
                  .pool = pool_number(pool_of(event), index)};
  const bool wanted = failures_ == Ask::kAll || (failures_ == Ask::kLast && index == last_failure_);
  if (wanted && event.size != 0 && event.size < kHopeless) {
    failure.object = static_cast<std::uint32_t>(workload_.objects_.size());
    const Size served = workload_.largest_;
    workload_.add({.size = event.size,
                   .site = event.site,
                   .stream = number_of(event.stream),
                   .pool = static_cast<std::uint16_t>(failure.pool),
                   .alignment_log2 = kFailureAlignmentLog2},
                  event.time, index);
    workload_.largest_ = served;
    workload_.end(failure.object, event.time, index);
  }
  workload_.failures_.push_back(failure);
}

void Workload::Reader::finish() {
  if (!begun_) begin_history();
  for (Object& object : workload_.objects_)
    object.end = std::min(object.end, static_cast<std::uint32_t>(workload_.steps_.size()));
  workload_.streams_ = streams_.size();
  for (Failure& failure : workload_.failures_) failure.stream = number_of(failure.stream);
  for (DeviceCall& call : workload_.device_calls_) call.stream = number_of(call.stream);
}

Workload::Workload(std::span<const Event> events, std::uint16_t device, Ask failures) : device_(device) {
  Reader reader(*this, events, failures);
  for (size_t i = 0; i < events.size(); ++i) reader.read(i);
  reader.finish();
}

Workload Workload::take(Trace& trace, std::uint16_t device, Ask failures) {
  constexpr size_t kStretch = 1 << 16;  // events that are forgotten at a time
  const std::span<const Event> events = trace.events();
  Workload workload;
  workload.device_ = device;
  Reader reader(workload, events, failures);
  for (size_t i = 0; i < events.size(); ++i) {
    if (i % kStretch == 0) trace.forget_events(i);
    reader.read(i);
  }
  trace.forget_events(events.size());
  reader.finish();
  workload.set_trace(trace);
  return workload;
}

void Workload::add(const Object& object, Tick time, std::uint32_t event) {
  const auto number = static_cast<std::uint32_t>(objects_.size());
  objects_.push_back(object);
  objects_.back().begin = static_cast<std::uint32_t>(steps_.size());
  objects_.back().end = ~0u;
  add_step(number, Kind::kAllocate, time, event);
  largest_ = std::max(largest_, object.size);
  live_ += object.size;
  most_live_ = std::max(most_live_, ++objects_live_);
  if (live_ > peak_live_) {
    peak_live_ = live_;
    peak_event_ = event;
  }
}

void Workload::add_step(std::uint32_t object, Kind kind, Tick time, std::uint32_t event) {
  Step step{.time = time, .event = event};
  step.object = object & ((1u << 31) - 1);  // a trace has fewer
  step.kind = kind;
  steps_.push_back(step);
}

void Workload::end(std::uint32_t object, Tick time, std::uint32_t event) {
  objects_[object].end = static_cast<std::uint32_t>(steps_.size());
  live_ -= objects_[object].size;
  --objects_live_;
  add_step(object, Kind::kFree, time, event);
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
        {{object.begin, std::max(object.end, object.begin + 1)}, object.size, object.alignment()});
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
