// SPDX-License-Identifier: Apache-2.0
//
// The plan of a whole program, as a plan file holds it (docs/reference/formats-plan.md): the allocations of
// all heaps in one sequence, laid out in one or more memories. A heap takes its own part of it:
//
//   sequence   a  device 0, pool 0   memory 0, offset 0        memories   0  "device 0"          8 KiB
//              b  device 0, pool 1   memory 1, offset 0                   1  "device 0, pool 1"  4 KiB
//              c  device 0, pool 0   memory 0, offset 4096
//
//   recorded_for(plan, 0, 0)   a and c, in an arena of 8 KiB
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memoir/plan/recorded_plan.h"
#include "memoir/plan/skeleton.h"

namespace memoir {

/// One range of memory with offsets of its own.
struct PlannedMemory {
  static constexpr Size kNoLimit = ~Size{0};

  std::string name;          // at most 32 printable letters of ASCII, and no other memory's
  Size capacity = kNoLimit;  // bytes that it has at most; kNoLimit: not known
  Size alignment = 1;        // bytes: all offsets, and the address that it begins at, are multiples of it
  Size size = 0;             // bytes of it that the plan needs: every planned allocation ends at or below
  Size load = 0;             // bytes: the most planned bytes live in it at once, the floor of its size

  bool operator==(const PlannedMemory&) const = default;
};

struct ProgramPlan {
  std::vector<PlannedAllocation> sequence;                // in the order in which they were made
  std::vector<PlannedMemory> memories;                    // at most 65,536
  std::string planner;                                    // the name of the planner that made it
  std::vector<std::pair<std::string, std::string>> meta;  // copied from the trace: model, input signature
  std::optional<Skeleton> skeleton;                       // of the sequence, where somebody made it

  bool operator==(const ProgramPlan&) const = default;
};

/// The plan of a pass in one arena, as the plan of a program with one memory, which has no name.
ProgramPlan program_of(const RecordedPlan& plan);

/// What the heap of that pool on that device is to follow. Its arena is the memory that its allocations are
/// planned in, and each has the alignment of that memory at least. Throws Error when that is more than one
/// memory, or one that another heap's allocations are planned in too: a heap owns its arena.
RecordedPlan recorded_for(const ProgramPlan& plan, std::uint16_t device = 0, std::uint32_t pool = 0);

/// The (device, pool) of each heap that the plan is for, ascending.
std::vector<std::pair<std::uint16_t, std::uint32_t>> heaps_of(const ProgramPlan& plan);

/// The most planned bytes live at once in each of the memories, of which only the number is looked at. Throws
/// Error where load() does.
std::vector<Size> loads_of(std::span<const PlannedAllocation> sequence, std::size_t memories);

}  // namespace memoir
