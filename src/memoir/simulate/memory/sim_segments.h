// SPDX-License-Identifier: Apache-2.0
//
// Segments from a device that is not there: addresses never run out, memory does, and every call is counted.
//
// A segment costs what a CUDA device charges for it (Segments::cost).
#pragma once

#include <vector>

#include "memoir/arena/sim_arena.h"
#include "memoir/heap/plain/span_heap.h"
#include "memoir/heap/segments.h"
#include "memoir/simulate/memory/held_log.h"
#include "memoir/simulate/memory/stream_clock.h"

namespace memoir {

/// Calls to the device that a simulation made: what the heap asked for, and what a driver is called for then.
struct DeviceCalls {
  std::uint64_t takes = 0;       // segments taken (cuMemAlloc)
  std::uint64_t give_backs = 0;  // segments given back (cuMemFree)
  std::uint64_t commits = 0;     // ranges mapped
  std::uint64_t decommits = 0;   // ranges unmapped
  std::uint64_t refusals = 0;    // takes and commits that the cap refused

  std::uint64_t creates = 0;   // handles of memory made for the ranges (cuMemCreate)
  std::uint64_t releases = 0;  // and given back (cuMemRelease)
  std::uint64_t maps = 0;      // pieces mapped (cuMemMap)
  std::uint64_t unmaps = 0;    // and unmapped (cuMemUnmap)
  std::uint64_t accesses = 0;  // runs of pieces made usable (cuMemSetAccess)
  std::uint64_t syncs = 0;     // the host waited for the device
  std::uint64_t waits = 0;     // one stream was made to wait for another (cuStreamWaitEvent)

  /// What the heap asked for.
  std::uint64_t all() const noexcept { return takes + give_backs + commits + decommits + refusals; }
  /// Calls to the driver, waits between streams aside.
  std::uint64_t driver() const noexcept {
    return takes + give_backs + creates + releases + maps + unmaps + accesses + syncs;
  }
  DeviceCalls& operator+=(const DeviceCalls& more) noexcept {
    takes += more.takes, give_backs += more.give_backs;
    commits += more.commits, decommits += more.decommits, refusals += more.refusals;
    creates += more.creates, releases += more.releases;
    maps += more.maps, unmaps += more.unmaps;
    accesses += more.accesses, syncs += more.syncs, waits += more.waits;
    return *this;
  }
  bool operator==(const DeviceCalls&) const = default;
};

/// Addresses without memory: every commit succeeds and nothing is counted.
class Addresses final : public Arena {
 public:
  explicit Addresses(Size capacity) noexcept : capacity_(align_up(capacity, kStep)) {}
  static constexpr Size kStep = 512;  // bytes

  Size capacity() const noexcept override { return capacity_; }
  Size granule() const noexcept override { return kStep; }
  bool commit(Range) noexcept override { return true; }
  void decommit(Range) noexcept override {}
  Size committed() const noexcept override { return 0; }

 private:
  Size capacity_;
};

struct SimSegmentsOptions {
  Offset shift = 0;              // bytes between a segment's address and its offset
  bool keeps = false;            // nothing goes back: a later take of the same size gets what was given back
  StreamClock* clock = nullptr;  // told when the host waits for the device; kept alive by the caller
  HeldWatch watch = {};          // told of every segment taken and given back
};

class SimSegments final : public Segments {
 public:
  /// Segments cost at most `cap` bytes together.
  explicit SimSegments(Size cap) noexcept : own_{.limit = cap}, memory_(&own_), spans_(addresses_) {}
  /// They are of a memory that they share with others, kept alive by the caller.
  explicit SimSegments(SimMemory& memory, const SimSegmentsOptions& options = {}) noexcept
      : memory_(&memory), options_(options), spans_(addresses_) {}
  SimSegments(const SimSegments&) = delete;
  SimSegments& operator=(const SimSegments&) = delete;

  /// False when there was no metadata memory; then every take() gives kNoOffset.
  bool ok() const noexcept { return spans_.ok(); }
  const DeviceCalls& calls() const noexcept { return calls_; }

  Offset take(Size size) noexcept override;
  void give_back(Range segment) noexcept override;
  Size held() const noexcept override { return held_; }

 private:
  SimMemory own_;
  SimMemory* memory_;
  SimSegmentsOptions options_;
  std::vector<Range> kept_;  // given back, and not gone; by address
  Size held_ = 0;
  DeviceCalls calls_;
  Addresses addresses_{Size{1} << 47};  // as many as a real device has
  SpanHeap spans_;                      // of the addresses: its objects are the segments
};

}  // namespace memoir
