// SPDX-License-Identifier: Apache-2.0
//
// The lattice that offsets may be confined to. A plan that is pushed down has only offsets that are sums of
// sizes rounded up to alignments, so a search need not look between the lines of the grid.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "memoir/plan/plan.h"

namespace memoir {

struct Grid {
  Size granule = 1;  // gcd of the alignments: whatever lies above a buffer starts at a multiple of it
  // every offset of a pushed-down plan is a multiple of it; sizes rounded up to the granule are too
  Size unit = 1;

  Size padded(Size size) const { return (size + granule - 1) / granule * granule; }
  bool operator==(const Grid&) const = default;
};

/// `ends` are those of obstacles: what rests on one starts at its end, rounded up.
inline Grid find_grid(const Problem& problem, const std::vector<Offset>& ends = {}) {
  Grid grid{0, 0};
  for (const Buffer& buffer : problem) grid.granule = std::gcd(grid.granule, buffer.alignment);
  grid.granule = std::max<Size>(grid.granule, 1);
  for (const Buffer& buffer : problem) grid.unit = std::gcd(grid.unit, grid.padded(buffer.size));
  for (const Offset end : ends) grid.unit = std::gcd(grid.unit, grid.padded(end));
  grid.unit = std::max<Size>(grid.unit, 1);
  for (bool changed = true;
       changed;) {  // an alignment that does not divide the unit must be a multiple of it
    changed = false;
    for (const Buffer& buffer : problem) {
      if (grid.unit % buffer.alignment == 0) continue;
      const Size unit = std::gcd(grid.unit, buffer.alignment);
      changed |= unit != grid.unit;
      grid.unit = unit;
    }
  }
  return grid;
}

/// The smallest arena size >= `bytes` that a pushed-down plan can have: a buffer ends there, and starts on
/// the grid and where its alignment allows it.
inline Size next_reachable(const Problem& problem, const Grid& grid, Size bytes) {
  Size best = problem.empty() ? 0 : ~Size{0};
  for (const Buffer& buffer : problem) {
    const Size offset = bytes > buffer.size ? bytes - buffer.size : 0;
    const Size step = std::max(grid.unit, buffer.alignment);  // one divides the other
    best = std::min(best, (offset + step - 1) / step * step + buffer.size);
  }
  return best;
}

/// The steps in which buffers are worth being counted: the granule, and the largest of the alignments above
/// it. Those aligned to a multiple of a step take up their size rounded up to it, all but the topmost.
inline std::vector<Size> alignment_steps(const Problem& problem) {
  constexpr std::size_t kMost = 8;
  std::vector<Size> steps;
  Size granule = 0;
  for (const Buffer& buffer : problem) {
    granule = std::gcd(granule, buffer.alignment);
    if (!steps.empty() && steps.back() == buffer.alignment) continue;
    const auto at = std::lower_bound(steps.begin(), steps.end(), buffer.alignment, std::greater<>());
    if (at != steps.end() && *at == buffer.alignment) continue;
    steps.insert(at, buffer.alignment);
    if (steps.size() > kMost) steps.pop_back();
  }
  if (!problem.empty() && std::find(steps.begin(), steps.end(), granule) == steps.end())
    steps.push_back(granule);
  return steps;
}

}  // namespace memoir
