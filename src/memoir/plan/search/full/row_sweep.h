// SPDX-License-Identifier: Apache-2.0
//
// Plans problems that are full nearly everywhere, from the first section to the last. Where the arena has no
// room to spare, those who die between two sections leave exactly the bytes that those who are born then
// need. So the two fall into groups of equal sums, and each group is one interval of the arena: its dying
// members are neighbours, and the newborn take their place.
//
//   dying 3 5 4, born 8 4      groups {3, 5} -> {8} and {4} -> {4}, or all in one
//
// Sums seldom agree by chance, so the groups are nearly known; the orders that they leave open stay open, in
// a tree (row_tree.h), until a later group decides. A beam of such trees, each with other groups, goes
// through time. Where the load changes, a group may leave room or take some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

struct RowSweepOptions {
  std::size_t width = 10;  // trees side by side
  bool backwards = false;  // in time
  // Where no tree comes through, back some sections and on from there with noise, each time farther back
  // until it comes farther. Else that is the end.
  bool goes_back = false;
  double noise = 0;        // of how likely a group seems; 0: none
  std::uint64_t seed = 0;  // of that
};

/// Can be continued. Deterministic. Not thread-safe.
class RowSweep {
 public:
  /// For plans of `height` bytes. Problem and sections must outlive it; every alignment must divide the
  /// grid's unit.
  RowSweep(const Problem& problem, const Sections& sections, const Grid& grid, Size height,
           const RowSweepOptions& options);
  ~RowSweep();
  RowSweep(RowSweep&&) noexcept;
  RowSweep& operator=(RowSweep&&) noexcept;

  /// Until it ends, or tried about `tries` groups, or the limits stop it: there limits.nodes are groups too.
  /// `work` is increased by the groups tried.
  void run(std::uint64_t tries, const SearchLimits& limits, std::uint64_t& work);

  /// It came through, or no tree did.
  bool ended() const;
  /// Of a plan: of the height where it came through, and where it came most of the way perhaps not much more;
  /// else empty.
  const std::vector<Offset>& offsets() const;
  /// How many sections it has come through at most.
  std::uint32_t passed() const;

 private:
  class Beam;
  std::unique_ptr<Beam> beam_;
};

}  // namespace memoir
