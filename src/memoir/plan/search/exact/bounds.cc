// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/exact/bounds.h"

#include <algorithm>

#include "memoir/plan/index/grid.h"

namespace memoir {
Bound lower_bound(const Problem& problem, const Sections& sections) {
  if (problem.empty()) return {0, "there are no buffers"};
  const auto fullest = std::max_element(sections.load.begin(), sections.load.end()) - sections.load.begin();
  Bound bound{sections.load[fullest], "the load at tick " + std::to_string(sections.tick[fullest])};
  const Grid grid = find_grid(problem);
  if (grid.granule == 1) return bound;

  // Padding of the buffers live in each section: its sum by differences, its maximum by a sweep over a heap.
  std::vector<Size> added(sections.count + 1), removed(sections.count + 1);
  std::vector<std::vector<std::uint32_t>> starting(sections.count);
  bool any = false;
  for (std::uint32_t i = 0; i < problem.size(); ++i) {
    const Size padding = grid.padded(problem[i].size) - problem[i].size;
    if (padding == 0) continue;
    any = true;
    added[sections.first[i]] += padding;
    removed[sections.last[i]] += padding;
  }
  if (!any) return bound;
  for (std::uint32_t i = 0; i < problem.size(); ++i) starting[sections.first[i]].push_back(i);
  // (padding, buffer), largest first; the dead leave when on top
  std::vector<std::pair<Size, std::uint32_t>> heap;
  Size padding = 0;
  for (std::uint32_t s = 0; s < sections.count; ++s) {
    padding += added[s] - removed[s];
    for (const std::uint32_t i : starting[s]) {
      heap.emplace_back(grid.padded(problem[i].size) - problem[i].size, i);
      std::push_heap(heap.begin(), heap.end());
    }
    while (sections.last[heap.front().second] <= s) {
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
    }
    const Size bytes = sections.load[s] + padding - heap.front().first;
    if (bytes > bound.bytes) {
      bound = {bytes, "the load at tick " + std::to_string(sections.tick[s]) +
                          " with all but the topmost buffer rounded up to " + std::to_string(grid.granule) +
                          " bytes, a divisor of every alignment"};
    }
  }
  return bound;
}

Bound lower_bound(const Problem& problem) {
  load(problem);  // throws when the sum does not fit
  return lower_bound(problem, find_sections(problem));
}

}  // namespace memoir
