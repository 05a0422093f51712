// SPDX-License-Identifier: Apache-2.0
//
// Plans for a device pool to follow: offsets are multiples of its alignment, and streams are kept apart where that
// is cheap.
//
//   together   | s0 | s1 | s0 |          least memory; each reuse across streams is a wait
//   apart      | s0 | s0 || s1 |         no waits; as much memory as the streams' own peaks add up to
#pragma once

#include <span>

#include "memoir/plan/plan.h"

namespace memoir {

/// Bytes of the plan by which streams apart may exceed streams together, as a share.
inline constexpr double kApartShare = 0.01;

/// A plan of `problem`, whose buffer i is used by streams[i]. Alignments in it are raised to `alignment` (a power
/// of two) first. Throws Error where planners do.
Plan plan_for_pool(Problem& problem, std::span<const StreamId> streams, Size alignment);

}  // namespace memoir
