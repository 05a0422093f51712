// SPDX-License-Identifier: Apache-2.0
//
// Streams without a device: who is ordered after whom, as vector clocks (Mattern, "Virtual time and global
// states of distributed systems", 1989), and a log from which a checker that knows nothing of heaps proves
// that no stream got bytes which another one might still be using.
//
//   stream 0   use x, freed at 7 ----- event
//   stream 1                             \ wait | use the bytes of x           seen(1, 0) >= 7: ordered
//   stream 2              use the bytes of x                                   seen(2, 0) = 0: a violation
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memoir/heap/stream_order.h"

namespace memoir {

/// What happened to memory and between streams, in the order of the host's calls.
struct StreamEvent {
  enum class Kind : std::uint8_t { kAllocate, kFree, kWait };
  Kind kind = Kind::kAllocate;
  StreamId stream = 0;  // kAllocate: that uses the object from now on; kWait: that waits
  StreamId other = 0;   // kWait: for all that is queued on it by now
  Range range;          // kAllocate: bytes of the arena; kFree: only where it begins

  bool operator==(const StreamEvent&) const = default;
};

/// Not thread-safe. Uses the heap's memory: for simulations and tests.
class StreamClock final : public StreamOrder {
 public:
  /// `keep_log`: note the waits, and what the owner notes of allocations and frees.
  explicit StreamClock(bool keep_log = false) : keep_log_(keep_log) {}

  bool is_ordered(StreamId from, Tick moment, StreamId to) noexcept override {
    return from == to || moment <= all_done() || seen(to, from) >= moment;
  }
  bool order(StreamId from, Tick moment, StreamId to) noexcept override;

  /// The host waits for the whole device, as it does before memory goes back: all that was queued is done.
  void quiet() noexcept {
    if (in_section_ && is_quiet_) return;
    note_all_done();
    ++quiets_;
    is_quiet_ = true;
  }
  /// While it lives, one wait does for all memory that goes back, as in one turn of a device's lock.
  class Section {
   public:
    explicit Section(StreamClock& clock) noexcept : clock_(clock) {
      clock.in_section_ = true;
      clock.is_quiet_ = false;
    }
    ~Section() { clock_.in_section_ = false; }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    StreamClock& clock_;
  };

  /// From now on nothing can be queued that makes this stream wait or waits for it, as while it is captured
  /// into a graph; until it is set free again.
  void capture(StreamId stream, bool on);

  void note_allocate(Range range, StreamId stream) {
    if (keep_log_) log_.push_back({StreamEvent::Kind::kAllocate, stream, 0, range});
  }
  void note_free(Offset offset) {
    if (keep_log_) log_.push_back({StreamEvent::Kind::kFree, 0, 0, {offset, 0}});
  }

  /// Times that one stream was made to wait for another.
  std::uint64_t waits() const noexcept { return waits_; }
  /// Times that the host waited for the device.
  std::uint64_t quiets() const noexcept { return quiets_; }
  std::span<const StreamEvent> log() const noexcept { return log_; }

 private:
  Tick seen(StreamId by, StreamId of) const noexcept {
    return by < seen_.size() && of < seen_[by].size() ? seen_[by][of] : 0;
  }

  bool keep_log_;
  bool in_section_ = false;
  bool is_quiet_ = false;  // the host waited in this section
  std::uint64_t waits_ = 0;
  std::uint64_t quiets_ = 0;
  // [by][of]: all that was queued on `of` up to this moment is before it
  std::vector<std::vector<Tick>> seen_;
  std::vector<bool> captured_;  // by stream
  std::vector<StreamEvent> log_;
};

/// Which event of the log is wrong, and why.
struct StreamViolation {
  std::size_t event = 0;
  std::string what;
};

/// Proves from the log alone that every allocation's bytes are free, and that its stream is ordered after
/// every earlier use of them by another one; nullopt when that is so. Slow (it looks at all earlier uses) and
/// obviously right: it keeps its own clocks.
std::optional<StreamViolation> check_stream_order(std::span<const StreamEvent> log);

}  // namespace memoir
