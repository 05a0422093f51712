// SPDX-License-Identifier: Apache-2.0
//
// From a trace to a problem and from its plan back to the pass:
//
//   events --read_pass--> RecordedPass --problem--> a planner --Plan--> record_plan --> RecordedPlan
//
// Lifetimes are event indices, half-open, counted from the pass's first event: no two events share a tick,
// and an object freed just before another is allocated may give it its bytes. Not planned, and counted
// instead:
//
//   escaping   still live when the pass ends: the outputs handed to the caller, caches that the model keeps
//   foreign    allocated during the pass by another thread than the one that began it
//   elsewhere  allocated on another device than the one that is planned
//   empty      of 0 bytes
//   mallocs    of a pass that has tensors: whatever else the process allocated meanwhile
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memoir/plan/plan.h"
#include "memoir/plan/recorded_plan.h"
#include "memoir/trace/objects/usage.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

struct RecordedPass {
  // nullopt: the trace has no passes, and this is all of it, every thread's
  std::optional<std::uint64_t> pass;
  std::uint32_t thread = 0;                 // the one that began the pass
  std::vector<PlannedAllocation> sequence;  // the thread's allocations in order, escaping and empty ones too
  std::vector<ObjectId> objects;            // of each in the sequence
  Problem problem;                          // those to be planned
  std::vector<std::uint32_t> positions;     // problem[i] is sequence[positions[i]]
  Amount escaping, foreign, elsewhere, empty, mallocs;
  std::vector<std::pair<std::string, std::string>> meta;
};

/// The pass of that number, or without one the last complete pass, or the whole of a trace that has no
/// passes; of what was allocated on `device`, or without one on any. Throws Error, naming the record, for a
/// free of an object that is not live, an object allocated twice, or lifetimes that cannot be; and when there
/// is no such pass, or none is complete.
RecordedPass read_pass(std::span<const Event> events, std::optional<std::uint64_t> pass = std::nullopt,
                       std::optional<std::uint16_t> device = std::nullopt);

/// The same, with the trace's meta.
inline RecordedPass read_pass(const Trace& trace, std::optional<std::uint64_t> pass = std::nullopt,
                              std::optional<std::uint16_t> device = std::nullopt) {
  RecordedPass recorded = read_pass(trace.events(), pass, device);
  for (const std::string_view key : trace.meta_keys()) {
    recorded.meta.emplace_back(std::string(key), std::string(trace.meta(key)));
  }
  return recorded;
}

/// The plan of the pass's problem, written back to its allocations. `plan` must be valid for
/// `recorded.problem`.
RecordedPlan record_plan(const RecordedPass& recorded, const Plan& plan, std::string_view planner);

}  // namespace memoir
