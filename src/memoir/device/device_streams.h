// SPDX-License-Identifier: Apache-2.0
//
// The streams of one device: their numbers, and which one's work is known to come after which other's.
//
//   clock(to, from)   everything that was queued on `from` up to this moment is done before what is queued on
//                     `to` from now on, because `to` waits for an event of `from`, or for one of a stream
//                     that itself waits for it
//   done(from)        everything that was queued on `from` up to this moment is done: the device said so
//
// (Vector clocks: Mattern, Virtual Time and Global States of Distributed Systems, 1989.) Not thread-safe:
// under the lock of the device's runtime. Nothing here waits but wait() and synchronize(). A stream is known
// by its handle: one that is destroyed with work still queued, and whose handle comes back for another, would
// be taken for the same.
#pragma once

#include "memoir/arena/cuda_device.h"
#include "memoir/base/metadata.h"
#include "memoir/heap/stream_order.h"

namespace memoir {

/// Calls to the device about order.
struct StreamCounts {
  std::uint64_t records = 0;  // events recorded
  std::uint64_t waits = 0;    // one queue was made to wait for another
  std::uint64_t quiets = 0;   // the host waited for the whole device
  Tick quiet_time = 0;        // nanoseconds: all those waits
  Tick longest_quiet = 0;     // nanoseconds
};

class DeviceStreams final : public StreamOrder, public DeviceQuiet {
 public:
  explicit DeviceStreams(CudaDevice& device) noexcept : device_(&device) {}
  ~DeviceStreams() override;
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  /// The number of a stream, given at first sight; kNoStream when there is no metadata memory.
  StreamId number(cuda::Stream stream) noexcept {
    if (last_ < streams_.size() && streams_[last_].handle == stream) [[likely]]
      return last_;
    return find(stream);
  }
  static constexpr StreamId kNoStream = ~StreamId{0};
  cuda::Stream handle(StreamId id) const noexcept { return streams_[id].handle; }
  size_t count() const noexcept { return streams_.size(); }
  /// True when work that is queued on it now goes into a graph instead.
  bool is_capturing(StreamId id) const noexcept;
  bool is_any_capturing() const noexcept;

  bool is_ordered(StreamId from, Tick moment, StreamId to) noexcept override;
  bool order(StreamId from, Tick moment, StreamId to) noexcept override;

  /// A graph is going to be captured, on a stream that need not be known, or no longer is.
  void announce_capture(bool is_going_on) noexcept { capture_announced_ = is_going_on; }

  /// A new stretch of the owner's lock begins: nothing is freed within it but by its holder, so one wait does
  /// for all memory that goes back in it.
  void begin_section() noexcept {
    is_quiet_ = false;
    ++section_;
  }
  /// Memory was freed that this stream used last. Every so many frees an event marks how far the stream is
  /// then, so that whoever asks for such memory later finds it done, rather than wait for all that the stream
  /// was given since. Nothing while there is one stream only.
  void note_free(StreamId id) noexcept {
    if (streams_.size() > 1 && ++streams_[id].frees >= kFreesPerMarker) mark(id);
  }
  /// Waits until everything that is queued on the device is done, on streams that are not known as well (a
  /// graph may be replayed on one). False while a known one is being captured, or a capture was announced.
  bool wait() noexcept override;

  /// An event that is reached when what is queued on the stream now is done; nullptr when it cannot be
  /// recorded (the stream is being captured, or the driver refuses). Give it back with put().
  cuda::Event record(StreamId id) noexcept;
  bool is_reached(cuda::Event event) noexcept;
  /// Waits for it.
  void synchronize(cuda::Event event) noexcept;
  void put(cuda::Event event) noexcept;

  const StreamCounts& counts() const noexcept { return counts_; }

 private:
  static constexpr std::uint32_t kFreesPerMarker = 32;
  static constexpr size_t kMarkers = 4;  // on their way at once
  struct Marker {
    cuda::Event event = nullptr;
    Tick moment = 0;  // when it was recorded
  };
  struct Known {
    cuda::Stream handle = nullptr;
    Tick done = 0;
    Marker markers[kMarkers] = {};  // not seen reached yet, the oldest first
    std::uint32_t marked = 0;       // so many of them
    std::uint32_t frees = 0;        // since the last
    std::uint64_t asked = 0;        // the section in which they were looked at last
  };

  StreamId find(cuda::Stream stream) noexcept;
  Tick& clock(StreamId to, StreamId from) noexcept { return clocks_[to * width_ + from]; }
  cuda::Event get() noexcept;
  void mark(StreamId id) noexcept;
  void look_at_markers(StreamId from) noexcept;

  CudaDevice* device_;
  MetadataArray<Known> streams_;
  MetadataArray<Tick> clocks_;  // width_ rows of width_
  size_t width_ = 0;
  MetadataArray<cuda::Event> spare_;
  StreamId last_ = 0;
  bool is_quiet_ = false;
  std::uint64_t section_ = 1;
  bool capture_announced_ = false;
  StreamCounts counts_;
};

}  // namespace memoir
