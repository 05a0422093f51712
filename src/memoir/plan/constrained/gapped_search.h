// SPDX-License-Identifier: Apache-2.0
//
// Searches where all that a problem says is when its buffers are not needed: the exact search and core first,
// which know of gaps. A window, the bytes that are still needed in a gap, is taken as all of them: what is
// found is a plan all the same, though not what is proven.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/index/stretches.h"
#include "memoir/plan/search/exact/exact_search.h"
#include "memoir/plan/search/portfolio.h"

namespace memoir {

/// Every body as one rectangle around its pieces, which are not empty.
Problem hulls(const Bodies& bodies);

class GappedSearch {
 public:
  /// One arena, and nothing said but gaps, aliases and rows.
  GappedSearch(const Bodies& bodies, std::uint64_t seed);

  /// Some body is not needed for a while. Without, the hulls say all.
  bool has_gaps() const { return stretches_.pieces.size() > problem_.size(); }
  /// One try to come down to `target`, or below `best` (which is larger). An offset for each body; empty: it
  /// did not. `work` is increased by the placements.
  std::vector<Offset> step(Size target, Size best, const SearchLimits& limits, std::uint64_t& work);
  /// What is left to do is another's: with windows, more steps would find little.
  bool ended() const;
  /// Proven: no plan is smaller. 0: nothing is.
  Size bound() const { return bound_; }

 private:
  std::vector<Offset> search(Size target, Size best, const SearchLimits& limits, std::uint64_t& work);
  std::vector<Offset> core(Size target, Size best, const SearchLimits& limits, std::uint64_t& work);

  Problem problem_;  // the hulls
  Stretches stretches_;
  Sections sections_;  // of the pieces
  Grid grid_;
  bool whole_ = true;  // no windows
  bool searchable_;    // small enough for the exact search as a whole
  std::uint64_t seed_;
  ExactSearch exact_;
  Portfolio portfolio_;
  std::vector<Attempt> attempts_;  // of the exact search, the next one last
  std::uint64_t steps_ = 0, cores_ = 0, searches_ = 0;
  double reach_ = 0.5;       // how far between the target and the best every other search aims
  double core_reach_ = 0.5;  // the same of core first
  Size bound_ = 0;
};

}  // namespace memoir
