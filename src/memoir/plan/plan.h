// SPDX-License-Identifier: Apache-2.0
//
// Offline dynamic storage allocation: buffers whose lifetimes are known get one offset each, such that two
// that live at the same time never overlap, and the arena is small.
//
//   offset                              Problem: three buffers        Plan
//     6 |      +-----+                    {{0, 4}, 2, 1}  // a          offsets    {0, 2, 0}
//       |      |  b  |                    {{2, 7}, 4, 1}  // b          arena_size 6
//     2 |--+---|     |--+                 {{4, 9}, 2, 1}  // c
//       |   a  +--+--+ c|               load() = 6: a and b are live together at ticks 2 and 3
//     0 +---------+-----+--> tick
//       0   2     4     7  9
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

struct Buffer {
  Lifetime lifetime;  // half-open ticks; begin < end
  Size size = 0;      // bytes; planners take those with > 0
  // bytes, > 0; its offset is a multiple of it. Any value, though powers of two are usual
  Size alignment = 1;

  bool operator==(const Buffer&) const = default;
};

using Problem = std::vector<Buffer>;

struct Plan {
  std::vector<Offset> offsets;  // one per buffer, in the problem's order
  Size arena_size = 0;          // bytes: the largest offset + size

  bool operator==(const Plan&) const = default;
};

/// Whether a problem may hold buffers of 0 bytes. Planners take none: see sized().
enum class Empty { kRefused, kAllowed };

/// Throws Error, naming the buffer by its index, when a lifetime is empty or inverted, a size or an alignment
/// is 0, or the sizes with their alignments add up to 2^63 bytes or more. Every planner calls it first and
/// may then add without care.
void validate(const Problem& problem, Empty empty = Empty::kRefused);

/// The problem has a buffer of 0 bytes.
bool has_empty(const Problem& problem);

/// The buffers that have bytes, in their order: what is planned of a problem that holds others too.
Problem sized(const Problem& problem);

/// The plan of a problem, from the plan of its sized(): buffers of 0 bytes get the offset 0. Throws Error
/// when that plan is of another number of buffers.
Plan with_empty(const Problem& problem, const Plan& plan);

/// The most bytes live at one tick: no plan can be smaller. Throws Error when the sum does not fit in 64
/// bits.
Size load(const Problem& problem);

/// The first tick at which load() bytes are live; 0 for an empty problem.
Tick busiest_tick(const Problem& problem);

/// The same buffers, every offset a multiple of `alignment` too. Throws Error for 0 and when that is beyond
/// 2^56.
Problem aligned_to(const Problem& problem, Size alignment);

/// Why a plan is not one: the buffers (indices into the problem) that break it. `second` equals `first` when
/// one buffer is wrong by itself (misaligned, or outside the arena).
struct Violation {
  size_t first = 0;
  size_t second = 0;
  std::string what;
};

/// Slow and obviously right: compares all pairs that live together. nullopt when the plan is valid. Buffers
/// of 0 bytes overlap nothing.
std::optional<Violation> check(const Problem& problem, const Plan& plan);

/// The same question answered in O(n log n), for plans of any size; of several violations it may name another
/// one.
std::optional<Violation> quick_check(const Problem& problem, const Plan& plan);

}  // namespace memoir
