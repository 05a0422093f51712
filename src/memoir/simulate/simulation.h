// SPDX-License-Identifier: Apache-2.0
//
// One policy, one workload, one cap: what would it have taken? The heap is the one that programs run on, over
// a device that only counts, so the answer is the allocator's own and not a model's.
//
//   bytes                    reserved  ________________
//     |                     __________|   gap          |____   what the heap holds beyond what is live
//     |           ________ |     _         __               |
//     |      ____|   _    |   __| |___    |  |___  live
//     |_____|_______| |______|        |___|      |_______
//     +----------------------------------------------------> steps
//
//   fragmentation at a moment = (reserved - live) / reserved
//
// A workload's private pools (CUDA graphs, MemPools) keep their memory to themselves, and for ever: a trace
// does not tell when graphs die. From a recorded state, those end that gave memory back and ask for none
// again.
//
// Left out: what the device's own calls cost in time, and memory that others hold on it (contexts,
// libraries). Objects that were live before the recording began are allocated afresh, in the order of the
// trace; with `recorded`, PyTorch's policies start from the segments that the recorded allocator held then,
// and its own can be compared with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/heap/phases.h"
#include "memoir/simulate/restored_run.h"
#include "memoir/simulate/simulated_heap.h"
#include "memoir/simulate/workload.h"

namespace memoir {

struct SimulationOptions {
  Size cap = kNoCap;             // bytes of the device
  bool stop_at_oom = true;       // else what cannot be placed is left out, and the rest goes on
  std::uint32_t samples = 1000;  // most points of the timeline; 0: none
  bool timed = true;             // measure nanoseconds per operation, in more passes over the same heap
  bool with_phases = false;      // fill the policy's phase table
  /// The policy that made the recording, as text: recorded_policy() with its settings. Unless "", a policy
  /// over segments of the same kind starts from the recorded state, as the program had it: what was live at
  /// the start is placed and not asked for, and counts as no operation. Where the recording gives segments
  /// back, it empties its cache, too (the program asked for that, or its device was full; under a cap, other
  /// settings than the recorded ones meet their own full device). Other policies start afresh.
  std::string recorded = {};
};

/// The extremes of one stretch of steps, so that no peak falls between two samples.
struct Sample {
  std::uint32_t event = 0;  // the first of the stretch
  Tick time = 0;            // its time, nanoseconds
  Size live = 0;            // most bytes live in it
  Size reserved = 0;        // most bytes reserved in it
  Size gap = 0;             // most bytes reserved and not live
};

struct OutOfMemory {
  std::uint32_t event = 0;  // the allocation that failed, by its index in the trace
  ObjectId object = 0;      // of the trace
  SiteId site = kNoSite;
  Size asked = 0;      // bytes
  Size live = 0;       // bytes live then, without it
  Size reserved = 0;   // bytes that the heap held then
  Size rounding = 0;   // of the bytes reserved and not live: lost inside live objects' places
  std::string reason;  // the heap's own, or ""
  /// Bytes reserved, not live and not lost to rounding: free, and yet of no use for this request.
  Size fragmented() const noexcept { return reserved - std::min(reserved, live + rounding); }
  /// Some layout of the objects live then would have had room for it under this cap.
  bool any_layout_fits(Size cap) const noexcept { return live <= cap && asked <= cap - live; }
};

/// Of one operation (an allocation or a free), in nanoseconds, once the heap has seen the trace: device calls
/// of later passes are simulated and cost nothing.
struct OperationTimes {
  double mean = 0;               // of groups of 16 operations, timed together: the median pass's
  double p50 = 0;                // of all such groups
  double p99_9 = 0;              // of single operations
  std::uint64_t operations = 0;  // measured
};

struct Simulation {
  std::string policy;  // as it was asked for
  Size cap = kNoCap;
  bool completed = true;         // every allocation was placed
  std::uint64_t operations = 0;  // done
  std::uint64_t failed = 0;      // allocations that could not be placed

  Size peak_live = 0;      // bytes as asked, placed
  Size peak_reserved = 0;  // bytes that the device handed out
  Size peak_committed = 0;
  Size private_reserved = 0;  // bytes that private pools had at the end
  /// Of the moments when so much was reserved, the one with the most bytes live: its event, and what was live
  /// then.
  std::uint32_t peak_reserved_event = 0;
  Size live_at_peak = 0;
  Size rounding_at_peak = 0;         // bytes lost inside the places of live objects then
  double fragmentation_at_peak = 0;  // 0 to 1
  double fragmentation_mean = 0;     // over all operations
  Size largest_gap = 0;              // most bytes reserved and not live at once
  std::uint32_t largest_gap_event = 0;

  DeviceCalls calls;               // the first pass's
  std::optional<OutOfMemory> oom;  // the first
  OperationTimes times;
  std::vector<Sample> timeline;
  std::vector<Phase> phases;
  std::optional<Fidelity> fidelity;  // of a run that started from the recorded state
  double seconds = 0;                // all of it, measuring included
};

/// Replays the workload on a fresh heap of that policy. Deterministic but for the times. Throws Error as
/// make_policy() and restored_state() do, and for a cap below the largest request, under which nothing could
/// ever complete.
Simulation simulate(const Workload& workload, std::string_view policy, const SimulationOptions& options = {});

struct CapTrial {
  Size cap = 0;
  bool completed = false;
};
struct CapSearch {
  Size cap = 0;                  // the smallest that completed; 0 when none did
  Size resolution = 0;           // bytes: caps between are not distinguished
  std::vector<CapTrial> trials;  // in the order tried
};

/// The smallest cap that completes, as far as this search sees. Allocators are not monotone in the cap: one
/// may complete under 10 GiB, fail under 11 and complete under 12. Between the workload's peak (which is
/// tried first: no cap below can do) and what the policy reserves when it is free to, the caps are bisected
/// down to `resolution` (0: 1/2048 of the peak, at least 512 bytes); then eight caps below the answer, at
/// distances that double, are tried, and when one of them completes the search goes on below it. With
/// `recorded` (see SimulationOptions), no cap is below what the policy starts with.
CapSearch find_cap(const Workload& workload, std::string_view policy, Size resolution = 0,
                   const std::string& recorded = {});

}  // namespace memoir
