// SPDX-License-Identifier: Apache-2.0
//
// Who knows which stream's work comes after which, and can make it so. A heap that lets one stream have what
// another one freed asks here first; it never waits itself.
//
//   stream A   use x | free x (moment 7)
//   stream B             order(A, 7, B) | use the bytes of x      B's queue waits for A's, the host does not
//
// Over a device this records an event and makes the other stream wait for it; in simulation it keeps vector
// clocks, which a checker reads. Not thread-safe; called by the heap under its owner's lock.
#pragma once

#include "memoir/base/units.h"

namespace memoir {

class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  /// The moment now: larger than every moment given before the last free. What is queued on any stream
  /// afterwards is after it.
  Tick now() noexcept { return ++moment_; }
  /// True when what was queued on `from` up to `moment` is known to be done before anything that is queued on
  /// `to` from now on. Cheap; true when both are one stream. May look at the device, never waits for it.
  virtual bool is_ordered(StreamId from, Tick moment, StreamId to) noexcept = 0;
  /// Makes it so. False when that cannot be now (a stream that is being captured): nothing changed.
  virtual bool order(StreamId from, Tick moment, StreamId to) noexcept = 0;
  /// All that was queued on any stream up to this moment is done: the host waited for the whole device.
  Tick all_done() const noexcept { return all_done_; }

 protected:
  /// The host waited for the whole device.
  void note_all_done() noexcept { all_done_ = moment_; }

  Tick moment_ = 0;  // the last that was given

 private:
  Tick all_done_ = 0;
};

}  // namespace memoir
