// SPDX-License-Identifier: Apache-2.0
//
// Drives any heap with the allocations and frees of a trace: what would it have taken? The heap is the one
// that a program runs on, so over a SimArena the answer is the allocator's own, not a model's.
#pragma once

#include <span>

#include "memoir/arena/arena.h"
#include "memoir/heap/heap.h"
#include "memoir/trace/event.h"

namespace memoir {

struct ReplayUsage {
  std::uint64_t allocations = 0;  // events; those of 0 bytes never reach the heap
  std::uint64_t frees = 0;        // events
  std::uint64_t served = 0;       // allocations that the heap placed
  std::uint64_t elsewhere = 0;    // allocations that it gave back (kNoOffset)
  Size elsewhere_bytes = 0;
  Size peak_load = 0;       // most bytes live at once in the trace: no heap can need less
  Size peak_live = 0;       // most bytes live at once in the heap
  Size peak_committed = 0;  // most bytes committed in the arena, looked at after each event
  Size peak_end = 0;  // the largest offset + size that was handed out: what a fixed arena would have to hold

  bool operator==(const ReplayUsage&) const = default;
};

/// Replays the events in order, on one thread; every other event is passed over. `arena` is the heap's.
/// Objects that the trace leaves live are freed at the end, so that the heap is as it was. Deterministic. The
/// events are those of a Trace: an object is allocated once, and freed at most once and later.
ReplayUsage replay(std::span<const Event> events, Heap& heap, const Arena& arena);

}  // namespace memoir
