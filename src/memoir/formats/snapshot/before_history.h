// SPDX-License-Identifier: Apache-2.0
//
// What was there when a snapshot's history began. The file does not say: it says what is there at the end,
// and what happened, of which a ring buffer may have dropped the beginning. So the history is undone:
//
//   at the end      A live, B pending, segments 1 and 2
//   history         ... free C | alloc A | segment_alloc 2 | free_requested B
//   at the start    B and C live, segment 1
//
// C is known by its free alone: its address, its size, not who made it. The pool of an object is that of its
// segment, unless its own entry says it.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/formats/snapshot/snapshot.h"

namespace memoir {

struct BeforeHistory {
  struct Segment {
    std::uint64_t address = 0;
    Size size = 0;
    std::uint32_t stream = 0, stack = 0, pool = 0;
    bool expandable = false;  // a range that was mapped
  };
  struct Object {
    std::uint64_t address = 0;
    Size size = 0;  // as asked
    std::uint32_t stream = 0, stack = 0, pool = 0;
    bool pending = false;  // the program had let go of it already
  };

  std::vector<Segment> segments;  // by address
  std::vector<Object> objects;    // by address
  /// Of the history's segment entries that have bytes, in order: their pools. Where entries do not say it,
  /// what is there at the end does; a segment that is gone by then is taken for the default pool's.
  std::vector<std::uint32_t> segment_pools;

  std::uint64_t known_by_free = 0;  // of `objects`: those whose allocation was dropped, and all but the free
  std::uint64_t after_history = 0;  // blocks that were made after the history ended: left out
  std::uint64_t odd_segments = 0;   // segment events that do not fit the segments at the end
};

/// Of one device. Throws Error for a history that cannot have been: a free of what is not live and cannot
/// have been live before, because it was freed already or no segment holds it; a segment where the history
/// has one already.
BeforeHistory before_history(const Snapshot& snapshot, std::size_t device);

}  // namespace memoir
