// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/device_streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace memoir {

DeviceStreams::~DeviceStreams() {
  for (Known& stream : streams_) {
    for (std::uint32_t i = 0; i < stream.marked; ++i)
      device_->driver().event_destroy(stream.markers[i].event);
  }
  for (cuda::Event event : spare_) device_->driver().event_destroy(event);
}

StreamId DeviceStreams::find(cuda::Stream stream) noexcept {
  for (StreamId id = 0; id < streams_.size(); ++id) {
    if (streams_[id].handle == stream) return last_ = id;
  }
  if (streams_.size() == width_) {
    const size_t width = std::max<size_t>(16, 2 * width_);
    MetadataArray<Tick> wider;
    if (!wider.assign(width * width, 0)) return kNoStream;
    for (size_t to = 0; to < width_; ++to) {
      for (size_t from = 0; from < width_; ++from) wider[to * width + from] = clocks_[to * width_ + from];
    }
    clocks_ = std::move(wider);
    width_ = width;
  }
  if (!streams_.push_back({.handle = stream})) return kNoStream;
  return last_ = static_cast<StreamId>(streams_.size() - 1);
}

bool DeviceStreams::is_capturing(StreamId id) const noexcept {
  int status = cuda::kNotCapturing;
  const CudaDevice::Scope scope(*device_);
  const cuda::Result result = device_->driver().stream_is_capturing(streams_[id].handle, &status);
  if (result != cuda::kSuccess)
    return cuda::is_about_capture(result);  // else: a stream that is gone captures nothing
  return status != cuda::kNotCapturing;
}

bool DeviceStreams::is_any_capturing() const noexcept {
  for (StreamId id = 0; id < streams_.size(); ++id) {
    if (is_capturing(id)) return true;
  }
  return false;
}

bool DeviceStreams::is_ordered(StreamId from, Tick moment, StreamId to) noexcept {
  if (from == to) return true;
  if (from >= streams_.size() || to >= streams_.size()) return false;
  if (moment <= all_done() || moment <= clock(to, from) || moment <= streams_[from].done) return true;
  look_at_markers(from);
  return moment <= streams_[from].done;
}

/// Marks how far the stream is now; with all markers on their way, the latest moves up to here.
void DeviceStreams::mark(StreamId id) noexcept {
  Known& stream = streams_[id];
  stream.frees = 0;
  const cuda::Event event = record(id);
  if (event == nullptr) return;
  if (stream.marked == kMarkers) put(stream.markers[--stream.marked].event);
  stream.markers[stream.marked++] = {event, moment_};
}

/// Each event is asked about at most once in a section: the device's answer would hardly be another one.
void DeviceStreams::look_at_markers(StreamId from) noexcept {
  Known& stream = streams_[from];
  if (stream.asked == section_) return;
  stream.asked = section_;
  std::uint32_t reached = 0;
  while (reached < stream.marked && is_reached(stream.markers[reached].event)) {
    stream.done = std::max(stream.done, stream.markers[reached].moment);
    put(stream.markers[reached++].event);
  }
  std::copy(stream.markers + reached, stream.markers + stream.marked, stream.markers);
  stream.marked -= reached;
  if (stream.marked == 0 && stream.done < moment_) mark(from);
}

bool DeviceStreams::order(StreamId from, Tick moment, StreamId to) noexcept {
  if (from == to) return true;
  if (from >= streams_.size() || to >= streams_.size()) return false;
  if (moment <= all_done() || moment <= clock(to, from) || moment <= streams_[from].done) return true;
  if (is_capturing(to)) return false;
  const cuda::Event event = record(from);
  if (event == nullptr) return false;
  const CudaDevice::Scope scope(*device_);
  const cuda::Result result = device_->driver().stream_wait_event(streams_[to].handle, event, 0);
  put(event);  // the wait is for what was recorded when it was queued
  if (result != cuda::kSuccess) {
    device_->note_refusal("cuStreamWaitEvent", result);
    return false;
  }
  ++counts_.waits;
  for (StreamId other = 0; other < streams_.size(); ++other) {
    clock(to, other) = std::max(clock(to, other), clock(from, other));
  }
  clock(to, from) = moment_;
  return true;
}

bool DeviceStreams::wait() noexcept {
  if (is_quiet_) return true;
  if (capture_announced_ || is_any_capturing()) return false;
  const auto began = std::chrono::steady_clock::now();
  {
    const CudaDevice::Scope scope(*device_);
    const cuda::Result result = device_->driver().context_synchronize();
    if (cuda::is_about_capture(result)) return false;  // of a stream that is not known
    // Another error is a kernel's that failed: it is reported to whoever asks next, and nothing runs any
    // more.
  }
  const auto waited = static_cast<Tick>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count());
  ++counts_.quiets;
  counts_.quiet_time += waited;
  counts_.longest_quiet = std::max(counts_.longest_quiet, waited);
  note_all_done();
  return is_quiet_ = true;
}

cuda::Event DeviceStreams::record(StreamId id) noexcept {
  if (is_capturing(id)) return nullptr;
  const cuda::Event event = get();
  if (event == nullptr) return nullptr;
  const CudaDevice::Scope scope(*device_);
  const cuda::Result result = device_->driver().event_record(event, streams_[id].handle);
  if (result == cuda::kSuccess) {
    ++counts_.records;
    return event;
  }
  device_->note_refusal("cuEventRecord", result);
  put(event);
  return nullptr;
}

bool DeviceStreams::is_reached(cuda::Event event) noexcept {
  const CudaDevice::Scope scope(*device_);
  // An error other than "not yet" is the device's (a kernel that failed): nothing will run on it any more.
  return device_->driver().event_query(event) != cuda::kNotReady;
}

void DeviceStreams::synchronize(cuda::Event event) noexcept {
  const CudaDevice::Scope scope(*device_);
  device_->driver().event_synchronize(event);
}

cuda::Event DeviceStreams::get() noexcept {
  if (!spare_.empty()) {
    const cuda::Event event = spare_.back();
    spare_.pop_back();
    return event;
  }
  cuda::Event event = nullptr;
  const CudaDevice::Scope scope(*device_);
  const cuda::Result result = device_->driver().event_create(&event, cuda::kDisableTiming);
  if (result == cuda::kSuccess) return event;
  device_->note_refusal("cuEventCreate", result);
  return nullptr;
}

void DeviceStreams::put(cuda::Event event) noexcept {
  if (!spare_.push_back(event)) device_->driver().event_destroy(event);
}

}  // namespace memoir
