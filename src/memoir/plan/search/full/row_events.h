// SPDX-License-Identifier: Apache-2.0
//
// What row_sweep.h meets on its way through time: who dies and who is born before each section, and what can
// be said of that in advance.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/index/grid.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/search/full/row_tree.h"

namespace memoir {

struct RowEvents {
  using Units = RowTree::Units;
  using List = std::vector<std::uint32_t>;

  std::vector<Units> size;        // per buffer
  std::vector<List> dying, born;  // before each section and after the last: buffers, the largest first
  std::vector<std::vector<Units>>
      room;  // where free room seems to begin in that section: the sizes of its parts
  // Per section, later ones: where all who die are one group, the last of which is born here.
  std::vector<List> together;
  bool fits = true;  // no section holds more than the height
};

/// `height` in units of the grid. Backwards, the last section is the first.
RowEvents row_events(const Problem& problem, const Sections& sections, const Grid& grid,
                     RowTree::Units height, bool backwards);

}  // namespace memoir
