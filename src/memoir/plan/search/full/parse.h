// SPDX-License-Identifier: Apache-2.0
//
// Reads a problem that is full nearly everywhere as a picture of rectangles in rectangles, the surest first.
// Where, of those that die at a boundary of sections, some leave exactly the bytes that some of the newborn
// take, they perhaps lie in one place, one after the other; all of them together are a rectangle again. How
// sure that is: the fewer ways there are to choose as many of them, and the larger the sum, the less likely
// it agrees by chance. So a queue over all boundaries joins the least likely sums first, and looks again at
// the boundaries around what it joined. Pinwheels of five, in which no two can be joined alone, are looked
// for around each that is born where another group dies:
//
//   +-------+---+        +-------+---+
//   |   2   |   |        |           |        1 and 2 share one boundary, 4 and 3 another, c lies between;
//   +---+---+ 3 |   ->   |     n     |        4 = c + 3 and 2 = c + 1 in bytes
//   | 4 | c |   |        |           |
//   |   +---+---+        |           |
//   |   |   1   | ...    +-----------+
//
// Free room takes part as buffers of its own. What is joined is a tie as bundles.h has them.
#pragma once

#include <cstdint>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/search/exact/bundles.h"

namespace memoir {

struct ParseOptions {
  double surest = -1;  // log odds of chance up to which sums are believed
  double noise = 0;    // added to these, in nats
  double rivals = 1;   // how much it counts that a group could also go with others
  std::uint64_t seed = 0;
};

/// Every alignment must divide the grid's unit. `work` is increased by the groups that are compared. Empty
/// when the limits stop it.
Bundles parse(const Problem& problem, const Sections& sections, const Grid& grid, const ParseOptions& options,
              const SearchLimits& limits, std::uint64_t& work);

}  // namespace memoir
