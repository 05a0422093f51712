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

#include <cstdint>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/search/exact_search.h"

namespace memoir {

struct RowSweepOptions {
  std::size_t width = 10;  // trees side by side
  bool backwards = false;  // in time
  double noise = 0;        // of how likely a group seems; 0: none
  std::uint64_t seed = 0;  // of that
};

/// Offsets, of a plan of `height` bytes but for what had no place in it; empty when no tree came through or
/// the limits came first. Every alignment must divide the grid's unit. Deterministic. `work` is increased by
/// the groups tried.
std::vector<Offset> row_sweep(const Problem& problem, const Sections& sections, const Grid& grid, Size height,
                              const RowSweepOptions& options, const SearchLimits& limits,
                              std::uint64_t& work);

}  // namespace memoir
