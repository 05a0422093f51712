// SPDX-License-Identifier: Apache-2.0
//
// A plan of all that a device was asked for in a recorded run, for the guided pool to follow in the next one.
#pragma once

#include <cstdint>
#include <span>

#include "memoir/plan/program_plan.h"
#include "memoir/simulate/workload.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

/// The whole workload in one arena, for objects that begin at multiples of `alignment`, a power of two. Few
/// bytes pass from one stream to another (policy/few_waits.h). Throws Error where planners do.
RecordedPlan plan_workload(const Workload& workload, Size alignment);

/// The same for a pool to follow, tried on the workload: with fewer waits between streams where that takes no
/// more memory than the pool takes online, else with the least memory; empty where the pool does better
/// online.
RecordedPlan guiding_plan(const Workload& workload, Size alignment);

/// Every object of that device that has bytes, those that outlive the trace too: they live to its end. Ticks
/// count the allocations and frees of these. Each private pool has a memory of its own behind that of the
/// default pool; one that does better online has no objects. Offsets are multiples of `alignment` (bytes, a
/// power of two), and few bytes pass from one stream to another (policy/few_waits.h). Throws Error for an
/// alignment that is no power of two, and where Workload and planners do.
ProgramPlan plan_run(std::span<const Event> events, std::uint16_t device, Size alignment);

/// The same, with the trace's meta.
ProgramPlan plan_run(const Trace& trace, std::uint16_t device, Size alignment);

}  // namespace memoir
