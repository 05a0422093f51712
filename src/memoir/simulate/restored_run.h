// SPDX-License-Identifier: Apache-2.0
//
// Follows a recording while a heap that started from its state is simulated: tells the simulated device what
// the recorded one did, empties the cache where the program did, and compares where objects went.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/simulate/simulated_heap.h"

namespace memoir {

/// A run that started from the recorded state, next to the recording. Addresses of new segments are the
/// recorded device's, where the heap asks for the same.
struct Fidelity {
  bool same_settings = false;        // as far as PyTorch has such settings: then all shall agree
  std::uint64_t start_segments = 0;  // or stretches of mapped memory
  std::uint64_t start_objects = 0;
  Size start_reserved = 0;    // bytes
  std::uint64_t objects = 0;  // allocations of the history with a recorded address, as far as the run came
  std::uint64_t agreed = 0;   // of these, placed at it
  std::optional<std::uint32_t> first_difference;  // the event of the first that was not
  Size recorded_peak = 0;  // bytes that the recorded allocator had at most, as far as the run came
  // of its device: segments taken and given back, ranges mapped and unmapped
  std::uint64_t recorded_calls = 0;
};

class RestoredRun {
 public:
  /// `simulated` was made with this start, for this policy, under this cap. Both it and the workload are kept
  /// alive by the caller.
  RestoredRun(const Workload& workload, SimulatedHeap& simulated, const RestoredState& start,
              std::string_view policy, Size cap = kNoCap);

  /// Where the heap has an object that was live at the start.
  Offset start_offset(std::uint32_t object) const noexcept;
  /// To be called before every step of the history.
  void before(size_t step) noexcept;
  /// After an allocation of the history; kNoOffset when it failed.
  void placed(const Workload::Step& step, Offset offset) noexcept;

  const Fidelity& fidelity() const noexcept { return fidelity_; }

 private:
  bool was_pressed(size_t step, std::span<const Workload::DeviceCall> calls) const noexcept;

  const Workload& workload_;
  SimulatedHeap& simulated_;
  Fidelity fidelity_;
  bool is_capped_;
  std::vector<size_t> ends_;  // by pool: the step from which on nothing is allocated in it
  size_t next_;               // device call
  Size reserved_;             // by the recorded allocator
};

}  // namespace memoir
