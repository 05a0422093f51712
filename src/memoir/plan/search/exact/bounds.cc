// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/exact/bounds.h"

#include <algorithm>

#include "memoir/plan/align.h"
#include "memoir/plan/index/grid.h"

namespace memoir {
namespace {

// Raises the bound to what those take up in steps that are aligned to a multiple of the step. What they take
// up in each section: its sum by differences, the most padding by a sweep over a heap.
void raise_by_step(const Problem& problem, const Sections& sections, Size step, Bound& bound) {
  std::vector<Size> added(sections.count + 1), removed(sections.count + 1);
  std::vector<std::vector<std::uint32_t>> starting(sections.count);
  std::size_t members = 0;
  const auto padding = [&](std::uint32_t i) { return align_to(problem[i].size, step) - problem[i].size; };
  bool any = false;
  for (std::uint32_t i = 0; i < problem.size(); ++i) {
    if (problem[i].alignment % step != 0) continue;
    ++members;
    any |= padding(i) != 0;
    added[sections.first[i]] += align_to(problem[i].size, step);
    removed[sections.last[i]] += align_to(problem[i].size, step);
    starting[sections.first[i]].push_back(i);
  }
  if (!any) return;
  // (padding, buffer), largest first; the dead leave when on top
  std::vector<std::pair<Size, std::uint32_t>> heap;
  Size live = 0;
  for (std::uint32_t s = 0; s < sections.count; ++s) {
    live += added[s] - removed[s];
    for (const std::uint32_t i : starting[s]) {
      heap.emplace_back(padding(i), i);
      std::push_heap(heap.begin(), heap.end());
    }
    while (!heap.empty() && sections.last[heap.front().second] <= s) {
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
    }
    if (heap.empty()) continue;
    const Size bytes = live - heap.front().first;
    if (bytes <= bound.bytes) continue;
    const std::string tick = std::to_string(sections.tick[s]), rounded = std::to_string(step);
    bound.bytes = bytes;
    bound.reason = members == problem.size()
                       ? "the load at tick " + tick + " with all but the topmost buffer rounded up to " +
                             rounded + " bytes, a divisor of every alignment"
                       : "the buffers at multiples of " + rounded + " bytes that are live at tick " + tick +
                             ", all but the topmost rounded up to that";
  }
}

}  // namespace

Bound lower_bound(const Problem& problem, const Sections& sections) {
  if (problem.empty()) return {0, "there are no buffers"};
  const auto fullest = std::max_element(sections.load.begin(), sections.load.end()) - sections.load.begin();
  Bound bound{sections.load[fullest], "the load at tick " + std::to_string(sections.tick[fullest])};
  for (const Size step : alignment_steps(problem)) {
    if (step > 1) raise_by_step(problem, sections, step, bound);
  }
  return bound;
}

Bound lower_bound(const Problem& problem) {
  load(problem);  // throws when the sum does not fit
  return lower_bound(problem, find_sections(problem));
}

}  // namespace memoir
