// SPDX-License-Identifier: Apache-2.0
//
// What a compiler does with memoir's planners: each layer of a small network writes one activation, which
// lives until the next layer has read it, and the first one until the skip connection at the end.
#include <cstdio>
#include <exception>

#include "memoir/plan/search/auto.h"

int main() try {
  constexpr memoir::Size kAlignment = 64, kArena = 24 * 1024;  // bytes: what the device has
  memoir::Problem problem;
  for (memoir::Tick layer = 0; layer < 12; ++layer) {
    const memoir::Size bytes = 1024 * (layer % 4 + 1) * 2;
    problem.push_back({{layer, layer + 2}, bytes, kAlignment});
  }
  problem.front().lifetime.end = 12;

  memoir::SearchOptions options;
  options.deadline_s = 0.1;
  options.capacity = kArena;
  const memoir::SearchResult result = memoir::plan_auto(problem, options);
  if (const auto violation = memoir::check(problem, result.plan)) {
    std::printf("not a plan: %s\n", violation->what.c_str());
    return 1;
  }
  for (size_t i = 0; i < problem.size(); ++i) {
    std::printf("layer %2zu: %5llu bytes at %5llu\n", i, static_cast<unsigned long long>(problem[i].size),
                static_cast<unsigned long long>(result.plan.offsets[i]));
  }
  std::printf("arena %llu bytes, no plan is below %llu (%s)\n",
              static_cast<unsigned long long>(result.plan.arena_size),
              static_cast<unsigned long long>(result.lower_bound), result.bound_reason.c_str());
  return result.fits(options) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
