// SPDX-License-Identifier: Apache-2.0
//
// One round of a loop, as the records of its last two rounds show it.
//
//   ticks     0 ............ ticks | 0 ........
//   a         |=====|              | |=====|         lives within the round
//   b         ==|        |=========|===|             passes into the next round
//   cut             ^ the request at whose begin the fewest bytes pass
#pragma once

#include <vector>

#include "memoir/heap/pool/loop_detector.h"

namespace memoir {

struct LoopRound {
  struct Object {
    Size size = 0;  // bytes as asked
    StreamId stream = 0;
    std::uint32_t begin = 0;  // in ticks of the round
    std::uint32_t ticks = 0;  // that it lives, on into the next round if need be; 0: for longer than a round
    Size live = 0;            // bytes of the whole program before it, in the last round
  };

  /// Of a detector whose period() is not 0. Throws std::bad_alloc.
  explicit LoopRound(const LoopDetector& detector);

  /// Index of the request at whose begin the fewest bytes pass from one round to the next.
  std::uint32_t cut() const;

  std::vector<Object> objects;  // in the order of their requests
  std::uint32_t ticks = 0;      // in a round: allocations and frees
  std::uint32_t first = 0;      // number of the first request
  Size least_live = ~Size{0};   // bytes, of the whole program
  Size longer = 0;              // bytes of the objects that live for longer than a round
};

}  // namespace memoir
