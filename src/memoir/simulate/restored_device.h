// SPDX-License-Identifier: Apache-2.0
//
// The simulated device with the recorded device's addresses: a heap that goes on from a recorded state is
// given the addresses that the recorded allocator was given, as long as it asks the same. Best fit looks at
// addresses, so without them even the same allocator would place objects elsewhere.
//
//   the recording   segment of 20 MiB at A for object 7          S  A 20 MiB, a 7
//   the simulation  expect(A, 20 MiB), allocate 7: take(20 MiB) -> A; take(2 MiB) -> one that nothing has
//
// What memory costs, the cap and the calls counted are those of the device beneath (SimSegments, SimArena).
// Uses the heap's memory: for simulations.
#pragma once

#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "memoir/arena/arena.h"
#include "memoir/heap/peers/pytorch/expandable_heap.h"
#include "memoir/heap/peers/pytorch/pytorch_heap.h"
#include "memoir/heap/segments.h"
#include "memoir/simulate/memory/held_log.h"
#include "memoir/simulate/restored_state.h"

namespace memoir {

class RestoredDevice {
 public:
  virtual ~RestoredDevice() = default;
  /// What the recorded device did for the next request; looked at until the next call.
  void expect(std::span<const Workload::DeviceCall> calls) noexcept { expected_ = calls; }
  /// The recorded address that an offset of the heap stands for; kNoOffset when it stands for none.
  virtual Offset address_of(Offset offset) const noexcept = 0;
  /// The other way, for the objects that were live at the start.
  virtual Offset offset_of(Offset address) const noexcept = 0;

 protected:
  std::span<const Workload::DeviceCall> expected_;
};

/// Over plain segments: offsets are recorded addresses.
class RestoredSegments final : public Segments, public RestoredDevice {
 public:
  /// `segments` is the device beneath, kept alive by the caller. `watch` is told of segments by their
  /// recorded addresses.
  RestoredSegments(Segments& segments, const Workload& workload, HeldWatch watch = {});

  /// Makes the heap, which is fresh but for its private pools (of the workload's numbers) and takes its
  /// segments from here, hold what was recorded. Throws Error when there
  /// is no memory for its bookkeeping, or too little on the device.
  void restore(PyTorchHeap& heap, const RestoredState& start);

  Offset take(Size size) noexcept override;
  void give_back(Range segment) noexcept override;
  Size held() const noexcept override { return segments_->held(); }

  Offset address_of(Offset offset) const noexcept override { return offset; }
  Offset offset_of(Offset address) const noexcept override { return address; }

 private:
  Offset expected_address(Size size) const noexcept;

  Segments* segments_;
  HeldWatch watch_;
  std::map<Offset, Range> held_;  // by recorded address: the segment of the device beneath
  Offset fresh_ = 0;              // no recorded segment lies from here on
};

/// Over mapped memory: an area of the heap stands for the recorded one into which the first memory was mapped
/// then.
class RestoredArena final : public Arena, public RestoredDevice {
 public:
  /// `arena` is the device beneath, kept alive by the caller.
  explicit RestoredArena(Arena& arena) noexcept : arena_(&arena) {}

  /// As RestoredSegments::restore(); to be called before anything else is asked of the heap.
  void restore(ExpandableHeap& heap, const RestoredState& start);

  Size capacity() const noexcept override { return arena_->capacity(); }
  Size granule() const noexcept override { return arena_->granule(); }
  bool commit(Range range) noexcept override;
  void decommit(Range range) noexcept override;
  Size committed() const noexcept override { return arena_->committed(); }

  Offset address_of(Offset offset) const noexcept override;
  Offset offset_of(Offset address) const noexcept override;

 private:
  struct Area {
    Offset base = kNoOffset;  // recorded address of its start
    Size mapped = 0;          // bytes
  };
  size_t index_of(Offset offset) const noexcept { return static_cast<size_t>(offset / stride_); }

  Arena* arena_;
  Size stride_ = 0;                             // bytes between areas
  std::vector<Area> areas_;                     // by number
  std::unordered_map<Offset, Offset> offsets_;  // of the objects live at the start, by address
};

}  // namespace memoir
