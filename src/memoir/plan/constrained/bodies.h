// SPDX-License-Identifier: Apache-2.0
//
// A constrained problem as the planners see it. Buffers that must share become one body; a body is a set of
// rectangles (a time, and the bytes needed in it) that move together, because they have one offset. A row of
// buffers that lie one after another is one body too, with each member at its shift:
//
//   buffers  a = [0, 4) with the gap 1-2@0:2, b = [6, 8) an alias of a      body 0, its pieces
//                                                                    4 |--+   +-----+       +-----+
//                                                                    2 |  +---+     |       |     |
//                                                                    0 +------------+       +-----+
#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "memoir/plan/constrained/constraints.h"

namespace memoir {

struct Body {
  std::vector<std::uint32_t> members;  // buffers
  Size size = 0;                       // bytes, the lead and all members
  // bytes at its start that belong to no member: they bring the members to their alignments
  Size lead = 0;
  Size alignment = 1;                   // the least common multiple of the members'
  bool row = false;                     // members lie one after another
  std::uint32_t misplaced = kNoBuffer;  // a member that no offset of the row aligns; validate() refuses it
  Offset fixed = kNoOffset;             // of all
  Offset hint = kNoOffset;              // of the first member that has one
  std::uint64_t allowed = 0;            // of all: bit k is arenas[k]
  std::uint64_t weight = 0;             // the sum
  std::uint32_t first_piece = 0, last_piece = 0;  // exclusive
  std::vector<std::uint32_t> apart;               // bodies
  std::vector<std::uint32_t> partners;            // bodies that it may share with in place
  struct Edge {
    std::uint32_t body, mine, other;  // mine and other are the buffers that conflict
  };
  std::vector<Edge> edges;  // conflicts said in addition to the times
};

struct Bodies {
  const ConstrainedProblem* problem = nullptr;
  std::vector<ArenaChoice> arenas;  // forbidden ranges sorted and merged
  std::vector<Body> bodies;
  std::vector<std::uint32_t> body_of;  // per buffer
  std::vector<Size> shift;             // per buffer: bytes from its body's offset to its own

  // Per piece, those of one body in a row. As a problem of their own they have sections and an index.
  Problem pieces;
  std::vector<Offset> window_begin;
  std::vector<std::uint32_t> piece_body, piece_buffer;

  std::unordered_set<std::uint64_t> sharing;  // pairs of buffers that may lie in place of one another

  /// The edge's own body is nowhere within the open interval (first, second) of the other's offset.
  std::pair<std::int64_t, std::int64_t> kept_apart(const Body::Edge& edge) const {
    const auto &mine = problem->buffers[edge.mine], &other = problem->buffers[edge.other];
    const auto ahead =
        static_cast<std::int64_t>(shift[edge.other]) - static_cast<std::int64_t>(shift[edge.mine]);
    return {ahead - static_cast<std::int64_t>(mine.size), ahead + static_cast<std::int64_t>(other.size)};
  }
  bool may_share(std::uint32_t buffer, std::uint32_t other) const {
    return !sharing.empty() && sharing.contains(pair_key(buffer, other));
  }
  static std::uint64_t pair_key(std::uint32_t a, std::uint32_t b) {
    return a < b ? std::uint64_t{a} << 32 | b : std::uint64_t{b} << 32 | a;
  }
};

/// The problem must be one that validate() accepts, and outlive the result. O(n log n).
Bodies make_bodies(const ConstrainedProblem& problem);

/// The plan of a place for each body.
ConstrainedPlan to_plan(const Bodies& bodies, const std::vector<Offset>& offsets,
                        const std::vector<std::uint32_t>& arenas);

/// The lowest offset >= from at which a body meets its alignment, its fixed offset and the arena's forbidden
/// ranges; kNoOffset when there is none.
Offset next_place(const Body& body, const ArenaChoice& arena, Offset from);

}  // namespace memoir
