// SPDX-License-Identifier: Apache-2.0
//
// A plan together with the pass that it was made from, for one heap to follow in one arena. A run matches its
// allocations against `sequence`, which therefore holds every allocation that the heap was asked for, in the
// order in which they were made: the planned ones with their offset, the escaping ones with kNoOffset.
// What a plan file holds, for a whole program and several memories: program_plan.h.
//
//   tick   0   1   2   3   4   5      sequence
//   event  +a  +b  -a  +c  -c  end    a  {site, 64, 64, {0, 2}, 0}
//                                     b  {site,  8, 64, {1, 5}, kNoOffset}  escapes: still live at the end
//                                     c  {site, 32, 64, {3, 4}, 0}
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

struct PlannedAllocation {
  SiteId site = kNoSite;
  Size size = 0;       // bytes as asked; 0 is allowed and never planned
  Size alignment = 1;  // bytes, a power of two
  Lifetime lifetime;   // event indices counted from the pass's first; one that escapes ends with the pass
  Offset offset = kNoOffset;  // in the arena, a multiple of the alignment; kNoOffset: take it elsewhere
  // Who asked: a heap is that of one pool on one device, and orders its streams. All 0 for a pass on a CPU.
  StreamId stream = 0;       // its number in the trace
  std::uint16_t device = 0;  // its number in the trace
  std::uint16_t memory = 0;  // where it lies: an index of ProgramPlan::memories; 0 when it is not planned
  std::uint32_t pool = 0;    // 0: the default one; private ones are 1, 2, ... in the order of first mention

  bool planned() const noexcept { return offset != kNoOffset; }
  bool operator==(const PlannedAllocation&) const = default;
};

struct RecordedPlan {
  std::vector<PlannedAllocation> sequence;
  Size arena_size = 0;  // bytes: every planned allocation ends at or below it
  Size load = 0;        // bytes: the most planned bytes live at once, the floor of arena_size
  std::string planner;  // the name of the planner that made it
  std::vector<std::pair<std::string, std::string>> meta;  // copied from the trace: model, input signature

  bool operator==(const RecordedPlan&) const = default;
};

}  // namespace memoir
