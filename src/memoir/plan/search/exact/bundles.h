// SPDX-License-Identifier: Apache-2.0
//
// Buffers that move as one. Programs reuse room: where a buffer of 79 bytes dies and the next one of 79 bytes
// is born, a good plan often gives it the same place; where 59 and 60 live the same ticks and 119 dies just
// before them, they take its place together. Tied up in advance, a problem has half the buffers and the
// same load, and a search that was hopeless ends at once, or, after other choices, soon.
//
//   +----+--------+          +-------------+
//   |    |   b    |          |             |     two bundles where there were five buffers:
//   | a  +--------+    ->    |    a b c    |     b on c after a, and e after d
//   |    |   c    |          |             |
//   +----+--+-----+          +-------------+
//   |   d   |  e  |          |     d e     |
//   +-------+-----+          +-------------+
//
// It is a restriction: every plan of the bundles is one of the problem, and some of the problem's are lost.
// What does not fit tied up proves nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/index/sections.h"
#include "memoir/plan/plan.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

struct BundleOptions {
  double keep = 1.0;       // the probability that a tie found is made, each time it is found
  std::uint64_t seed = 0;  // of that, and of the order in which partners are looked for
};

struct Bundles {
  Problem problem;                       // one buffer per bundle
  std::vector<std::uint32_t> bundle_of;  // per buffer of the problem tied up
  std::vector<Offset> within;            // its offset from that of its bundle

  /// The problem's offsets, from those of the bundles.
  std::vector<Offset> untie(const std::vector<Offset>& offsets) const;
};

/// Ties by equal size (padded to the gcd of the alignments) at the boundaries of sections, in at most 20
/// passes. The load of the bundles is that of the problem with its buffers padded. Their ticks are sections:
/// how long a buffer lives in ticks says less of how hard it is to place than how many others it meets.
Bundles tie(const Problem& problem, const Sections& sections, const BundleOptions& options);

/// Tied up, does it fit? kFits with the problem's offsets, or kGaveUp, be it that the limit of nodes came or
/// that these ties do not fit. `work` is increased by the placements tried.
Verdict search_tied(const Bundles& bundles, Size capacity, const Ranking& ranking, const SearchLimits& limits,
                    std::vector<Offset>& offsets, std::uint64_t& work);

}  // namespace memoir
