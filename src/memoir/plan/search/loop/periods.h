// SPDX-License-Identifier: Apache-2.0
//
// Loops in a problem: stretches of time in which the same buffers are born again and again, as the line
// buffers of a stencil or the rounds of an unrolled program are.
//
//   sections   0   1 | 2   3 | 4   5 | 6   7 | 8        the births of [2, 8) repeat with a period of 2:
//              prologue   rounds 0, 1, 2      epilogue    a is born in the first section of each round and
//   a                +-----+ +-----+ +-----+             lives for 1.5 of them, b in the second
//   b                    +-+     +-+     +-+
//
// Found by hashes of what each section gives birth to: of windows of time of many lengths the prefix function
// (Knuth, Morris, Pratt, SIAM J. Comput. 6, 1977) gives the smallest period, and a window that has one grows
// as far as it holds.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "memoir/plan/index/sections.h"
#include "memoir/plan/plan.h"
#include "memoir/plan/search.h"

namespace memoir {

/// A buffer of the loop's body.
struct LoopBuffer {
  std::uint32_t begin = 0, length = 0;  // sections, from the round's first one; it may outlive its round
  Size size = 0;                        // bytes: the most of any round
  Size alignment = 1;
};

struct LoopInstance {
  std::uint32_t buffer;  // of the problem
  std::uint32_t body;    // which buffer of the body it is
  std::int64_t round;    // before the first one in the prologue
};

struct Loop {
  std::uint32_t first = 0, last = 0;  // sections that its rounds are born in, exclusive
  std::uint32_t period = 0;           // sections; 0: somebody said which buffers repeat, not when
  std::vector<LoopBuffer> body;
  std::vector<LoopInstance> instances;  // no two of one body and round

  /// Which buffers of a ring of so many rounds meet, each pair once: the buffer of the body in round r is the
  /// ring's r % rounds * body.size() + body, and who meets in any round must not share a byte of the ring.
  /// Empty with `fits` false: a buffer lives for longer than the ring turns, or there are too many pairs.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> meetings(const Sections& sections,
                                                                std::uint32_t rounds, bool& fits) const;
};

/// Those of four rounds and more, the largest first, at most eight. Buffers of the prologue and the epilogue
/// that live within a round's buffer of the same size, had there been that round, count to the loop.
/// O(n log n).
std::vector<Loop> find_loops(const Problem& problem, const Sections& sections);

/// One loop of what somebody says: buffers of the same number are one buffer of the body, round by round in
/// the order of their births; kNoLoop is none. Nothing when no number has four rounds.
std::vector<Loop> said_loops(const Problem& problem, const Sections& sections,
                             const std::vector<std::uint32_t>& said);

}  // namespace memoir
