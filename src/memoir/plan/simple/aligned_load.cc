// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/aligned_load.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "memoir/plan/align.h"

namespace memoir {

Size aligned_load(const Problem& problem) {
  validate(problem);
  Size unit = 0;
  for (const Buffer& buffer : problem) unit = std::gcd(unit, buffer.alignment);
  if (unit <= 1) return load(problem);

  std::vector<const Buffer*> births, deaths;
  for (const Buffer& buffer : problem) births.push_back(&buffer);
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
    while (death != deaths.end() && (*death)->lifetime.end <= now) live -= align_to((*death++)->size, unit);
    const Size rounded = align_to(buffer->size, unit);
    live += rounded;
    padding.emplace(rounded - buffer->size, buffer->lifetime.end);
    while (padding.top().second <= now) padding.pop();
    most = std::max(most, live - padding.top().first);
  }
  return most;
}

}  // namespace memoir
