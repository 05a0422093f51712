// SPDX-License-Identifier: Apache-2.0
//
// Time, cut down to what matters for placing: a section is a maximal set of buffers that live together, the
// slice between a birth and the next death after it. Live sets in between are subsets of one of them, so a
// plan without overlap in every section has none at all. A problem of n buffers has at most n sections. (The
// slices are those of minimalloc, ASPLOS'23.)
//
//   ticks     0  1  2  3  4  5        a = [0,4)  b = [1,2)  c = [2,5)
//   a         +-----------+           sections:  0 = {a, b}   1 = {a, c}
//   b            +--+                 first      {0, 0, 1}
//   c               +--------+        last       {2, 1, 2}    (exclusive)
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

struct Sections {
  std::uint32_t count = 0;
  std::vector<std::uint32_t> first, last;  // per buffer: it is live in sections [first, last)
  std::vector<Tick> tick;                  // per section: a tick at which exactly its buffers are live
  std::vector<Size> load;                  // per section: bytes live

  /// The largest load of a section: equals memoir::load() of the problem.
  Size max_load() const;
};

/// O(n log n). The caller has made sure that sums of sizes fit in 64 bits (load() throws when they do not).
Sections find_sections(const Problem& problem);

}  // namespace memoir
