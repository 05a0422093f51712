// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/index/sections.h"

#include <algorithm>

#include "memoir/plan/stop_point.h"

namespace memoir {

Size Sections::max_load() const { return load.empty() ? 0 : *std::max_element(load.begin(), load.end()); }

Sections find_sections(const Problem& problem) {
  struct Moment {
    Tick tick;
    std::uint32_t buffer;
    bool operator<(const Moment& other) const { return tick < other.tick; }
  };
  const auto n = static_cast<std::uint32_t>(problem.size());
  std::vector<Moment> births(n), deaths(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    births[i] = {problem[i].lifetime.begin, i};
    deaths[i] = {problem[i].lifetime.end, i};
  }
  stop_point();
  std::stable_sort(births.begin(), births.end());
  stop_point();
  std::stable_sort(deaths.begin(), deaths.end());
  stop_point();

  Sections sections;
  sections.first.resize(n);
  sections.last.resize(n);
  Size live = 0;
  bool open = false;  // a buffer was born since the last section closed
  Tick last_birth = 0;
  auto death = deaths.begin();
  const auto die = [&](const Moment& moment) {
    if (open) {
      sections.tick.push_back(last_birth);
      sections.load.push_back(live);
      ++sections.count;
      open = false;
    }
    sections.last[moment.buffer] = sections.count;
    live -= problem[moment.buffer].size;
  };
  for (const Moment& birth : births) {
    while (death != deaths.end() && death->tick <= birth.tick) die(*death++);
    sections.first[birth.buffer] = sections.count;
    live += problem[birth.buffer].size;
    last_birth = birth.tick;
    open = true;
  }
  while (death != deaths.end()) die(*death++);
  return sections;
}

}  // namespace memoir
