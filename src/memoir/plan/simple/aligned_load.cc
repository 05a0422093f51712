// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/aligned_load.h"

#include <algorithm>
#include <queue>

#include "memoir/plan/align.h"
#include "memoir/plan/index/grid.h"

namespace memoir {

namespace {

/// Of those aligned to a multiple of the step: the most that they take up at one tick, rounded up to it, all
/// but the topmost.
Size load_in_steps(const Problem& problem, Size step) {
  std::vector<const Buffer*> births, deaths;
  for (const Buffer& buffer : problem) {
    if (buffer.alignment % step == 0) births.push_back(&buffer);
  }
  deaths = births;
  std::sort(births.begin(), births.end(),
            [](auto a, auto b) { return a->lifetime.begin < b->lifetime.begin; });
  std::sort(deaths.begin(), deaths.end(), [](auto a, auto b) { return a->lifetime.end < b->lifetime.end; });
  // What rounding adds to a buffer, the most on top; the dead are dropped when they get there.
  std::priority_queue<std::pair<Size, Tick>> padding;
  Size live = 0, most = 0;
  auto death = deaths.begin();
  for (const Buffer* buffer : births) {
    const Tick now = buffer->lifetime.begin;
    while (death != deaths.end() && (*death)->lifetime.end <= now) live -= align_to((*death++)->size, step);
    const Size rounded = align_to(buffer->size, step);
    live += rounded;
    padding.emplace(rounded - buffer->size, buffer->lifetime.end);
    while (padding.top().second <= now) padding.pop();
    most = std::max(most, live - padding.top().first);
  }
  return most;
}

}  // namespace

Size aligned_load(const Problem& problem) {
  validate(problem);
  Size most = load(problem);
  for (const Size step : alignment_steps(problem)) {
    if (step > 1) most = std::max(most, load_in_steps(problem, step));
  }
  return most;
}

}  // namespace memoir
