// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/plan.h"

#include <algorithm>

#include "memoir/base/error.h"

namespace memoir {

Size load(const Problem& problem) {
  std::vector<std::pair<Tick, const Buffer*>> births, deaths;
  births.reserve(problem.size());
  deaths.reserve(problem.size());
  for (const Buffer& buffer : problem) {
    births.emplace_back(buffer.lifetime.begin, &buffer);
    deaths.emplace_back(buffer.lifetime.end, &buffer);
  }
  std::sort(births.begin(), births.end());
  std::sort(deaths.begin(), deaths.end());
  Size live = 0, most = 0;
  auto death = deaths.begin();
  for (const auto& [tick, buffer] : births) {
    while (death != deaths.end() && death->first <= tick) live -= (death++)->second->size;
    if (__builtin_add_overflow(live, buffer->size, &live)) {
      throw Error("the sizes of the buffers live at tick " + std::to_string(tick) +
                  " add up to more than 2^64 bytes");
    }
    most = std::max(most, live);
  }
  return most;
}

std::optional<Violation> check(const Problem& problem, const Plan& plan) {
  if (plan.offsets.size() != problem.size()) {
    return Violation{0, 0,
                     "the plan has " + std::to_string(plan.offsets.size()) + " offsets for " +
                         std::to_string(problem.size()) + " buffers"};
  }
  for (size_t i = 0; i < problem.size(); ++i) {
    const Offset offset = plan.offsets[i];
    if (offset % problem[i].alignment != 0)
      return Violation{i, i, "offset is not a multiple of the alignment"};
    if (problem[i].size > plan.arena_size || offset > plan.arena_size - problem[i].size) {
      return Violation{i, i, "buffer ends outside the arena"};
    }
  }
  // Every pair that lives together is compared: visit births in order, beside the buffers still live.
  std::vector<size_t> order(problem.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return problem[a].lifetime.begin < problem[b].lifetime.begin; });
  std::vector<size_t> live;
  for (const size_t i : order) {
    std::erase_if(live, [&](size_t j) { return problem[j].lifetime.end <= problem[i].lifetime.begin; });
    for (const size_t j : live) {
      if (Range{plan.offsets[i], problem[i].size}.overlaps({plan.offsets[j], problem[j].size})) {
        return Violation{std::min(i, j), std::max(i, j), "the two live at the same time and overlap"};
      }
    }
    live.push_back(i);
  }
  return std::nullopt;
}

}  // namespace memoir
