// SPDX-License-Identifier: Apache-2.0
//
// Who lies on whom: what is left of a plan when its sizes are forgotten. For other sizes of the same buffers,
// one pass over them gives offsets that are valid:
//
//   offset                      b is directly above a when at some tick both live, and nothing lives between
//     | +-----+                 them:  a below b, a below c
//     | |  b  | +---+
//     | +-----+ | c |           offset of a buffer = the most of  offset + size  of those directly below it,
//     | |  a        |           rounded up to its alignment; 0 when there is none
//     | +-----------+
//
// Why that is valid: of two buffers that live at one tick, the upper rests on the lower through those that
// live between them at that tick. At the sizes of the plan no offset is larger than the plan's, and equal
// where nothing in the plan could be pushed down.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/plan/recorded_plan.h"

namespace memoir {

struct Skeleton {
  // the planned buffers from the lowest to the highest: each after those below it
  std::vector<std::uint32_t> order;
  // one per buffer, and one more: buffer b lies on below[first[b]] and the following, up to below[first[b +
  // 1]]
  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> below;  // buffers; of each b ascending

  /// Those directly below that buffer.
  std::span<const std::uint32_t> below_of(std::size_t buffer) const noexcept {
    return {below.data() + first[buffer], below.data() + first[buffer + 1]};
  }
  bool operator==(const Skeleton&) const = default;
};

/// Of a plan that is valid. Buffers are the sequence's allocations; those not planned lie nowhere, and those
/// of different memories never on each other. O(n log n); at most 3 n pairs. Throws Error for 2^30
/// allocations or more.
Skeleton find_skeleton(std::span<const PlannedAllocation> sequence);

/// The planned buffers of a sequence by ascending offset: the order of its skeleton.
std::vector<std::uint32_t> order_by_offset(std::span<const PlannedAllocation> sequence);

/// Offsets for other sizes, in bytes, 0 allowed; each a multiple of its alignment (in bytes, > 0). kNoOffset
/// for what is not planned. Throws Error when there is not one size and one alignment per buffer, an
/// alignment is 0, or the sizes with their alignments add up to 2^63 bytes or more.
std::vector<Offset> place_on(const Skeleton& skeleton, std::span<const Size> sizes,
                             std::span<const Size> alignments);

/// The same into `offsets`, one per buffer, without allocating. nullopt: all is well; else the buffer whose
/// alignment is 0 or whose size brings the sum to 2^63 bytes or more, and `offsets` holds nothing of use.
std::optional<std::uint32_t> place_on(const Skeleton& skeleton, std::span<const Size> sizes,
                                      std::span<const Size> alignments, std::span<Offset> offsets) noexcept;

}  // namespace memoir
