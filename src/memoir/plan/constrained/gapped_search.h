// SPDX-License-Identifier: Apache-2.0
//
// Searches where all that a problem says is when its buffers are not needed, where some of them must lie,
// and which bytes none may touch: the exact search and core first, which know of gaps and obstacles. What is
// fixed is an obstacle while its bytes are needed, a forbidden range always. A window, the bytes that are
// still needed in a gap, is taken as all of them: what is found is a plan all the same, though not what is
// proven.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/index/stretches.h"
#include "memoir/plan/search/exact/exact_search.h"
#include "memoir/plan/search/exact/portfolio.h"

namespace memoir {

/// Every body as one rectangle around its pieces, which are not empty.
Problem hulls(const Bodies& bodies);

class GappedSearch {
 public:
  /// One arena, and nothing said but gaps, aliases, rows, fixed offsets and forbidden ranges. Plans of
  /// `below` bytes and more are of no use.
  GappedSearch(const Bodies& bodies, Size below, std::uint64_t seed);

  /// Some body is not needed for a while, or has something in its way. Without, the hulls say all.
  bool worthwhile() const { return !problem_.empty() && stretches_.pieces.size() > problem_.size(); }
  /// One try to come down to `target`, at least the end of whatever is fixed, or below `best` (which is
  /// larger and at most `below`). An offset for each body; empty: it did not. `work` is increased by the
  /// placements.
  std::vector<Offset> step(Size target, Size best, const SearchLimits& limits, std::uint64_t& work);
  /// What is left to do is another's: with windows, more steps would find little.
  bool ended() const;
  /// Proven: no plan is smaller. 0: nothing is.
  Size bound() const { return bound_; }

 private:
  std::vector<Offset> search(Size target, Size best, const SearchLimits& limits, std::uint64_t& work);
  std::vector<Offset> core(Size target, Size best, const SearchLimits& limits, std::uint64_t& work);
  std::vector<Offset> with_fixed(const std::vector<Offset>& offsets) const;

  std::vector<std::uint32_t> free_;  // bodies that are not fixed
  std::vector<Offset> fixed_;        // per body, for those that are
  Problem problem_;                  // the hulls of the free ones
  Stretches stretches_;
  Sections sections_;  // of the pieces
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
