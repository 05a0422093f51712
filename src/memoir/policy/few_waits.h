// SPDX-License-Identifier: Apache-2.0
//
// Plans for a device's heap to follow: offsets are multiples of its alignment, and as few bytes as can be
// pass from one stream to another, since each time the one has to wait for the other.
//
//   separate  | s0   s0 | s1 |     no waits; as much memory as the streams' own peaks add up to
//   leaning   | s0   s0 s0*s1|     least memory; the largest stream is stacked up from one end, and reaches
//                                  into the parts of the others only while it is high (s0*): a few waits
//   together  | s0 s1 s0 s1  |     least memory; many waits
#pragma once

#include <cstdint>
#include <span>

#include "memoir/plan/plan.h"

namespace memoir {

/// Bytes of the plan by which a plan of fewer waits may exceed the smallest plan, as a share.
inline constexpr double kShareForWaits = 0.01;

inline constexpr std::uint64_t kNoLimitOfSteps = ~std::uint64_t{0};

/// A plan of `problem`, whose buffer i is used by streams[i]: the first of the three that takes no more than
/// it may. Alignments in the problem are raised to `alignment` (a power of two) first. Throws Error where
/// planners do.
///
/// With `steps` it tries only what these allow, and always one planner that takes n log n. A step is a look
/// at a buffer that lives together with the one that is placed, some 5 ns: counted before each attempt from
/// the problem alone, so the same steps give the same plan on every machine.
Plan plan_with_few_waits(Problem& problem, std::span<const StreamId> streams, Size alignment,
                         std::uint64_t steps = kNoLimitOfSteps);

}  // namespace memoir
