// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/exact/decompose.h"

#include <algorithm>
#include <numeric>

#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr int kMostLevels = 100;  // each costs a pass over the buffers, and a frame of the stack

// One stretch of time in which something is always live, its buffers by birth: lays down those that span it,
// cuts the rest. `aligned`: every sum of padded sizes suits every alignment, so that what is laid at the
// bottom shifts nothing off its grid. Nested up to kMostLevels: deeper, what is left stays one part.
void cut(const Problem& problem, const Grid& grid, bool aligned, Part part, int level, Decomposition& out) {
  std::vector<std::uint32_t>& buffers = part.buffers;
  // It has one section only if no one is born after the first death; then all are alike and stack.
  Tick last_birth = 0, first_death = ~Tick{0};
  for (const std::uint32_t i : buffers) {
    last_birth = std::max(last_birth, problem[i].lifetime.begin);
    first_death = std::min(first_death, problem[i].lifetime.end);
  }
  // A buffer is in every section when it is born by the first death and dies after the last birth.
  const auto spans = [&](std::uint32_t i) {
    return aligned && problem[i].lifetime.begin < first_death && problem[i].lifetime.end > last_birth &&
           grid.padded(problem[i].size) == problem[i].size;
  };
  const auto rest = std::stable_partition(buffers.begin(), buffers.end(), spans);
  if (rest == buffers.begin() || level == kMostLevels) {
    out.parts.push_back(std::move(part));
    return;
  }
  for (auto it = buffers.begin(); it != rest; ++it) {
    out.placed.emplace_back(*it, part.base);
    part.base += problem[*it].size;
  }
  for (auto begin = rest; begin != buffers.end();) {
    auto end = begin;
    Tick death = problem[*begin].lifetime.end;
    while (end != buffers.end() && problem[*end].lifetime.begin < death) {
      death = std::max(death, problem[*end++].lifetime.end);
    }
    cut(problem, grid, aligned, {{begin, end}, part.base}, level + 1, out);
    begin = end;
  }
}

}  // namespace

Decomposition decompose(const Problem& problem) {
  Decomposition out;
  const Grid grid = find_grid(problem);
  const bool aligned = std::all_of(problem.begin(), problem.end(),
                                   [&](const Buffer& buffer) { return grid.unit % buffer.alignment == 0; });
  std::vector<std::uint32_t> order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    stop_point();
    return problem[a].lifetime.begin < problem[b].lifetime.begin;
  });
  for (auto begin = order.begin(); begin != order.end();) {
    auto end = begin;
    Tick death = 0;
    while (end != order.end() && (end == begin || problem[*end].lifetime.begin < death)) {
      death = std::max(death, problem[*end++].lifetime.end);
    }
    cut(problem, grid, aligned, {{begin, end}, 0}, 0, out);
    begin = end;
  }
  return out;
}

Problem extract(const Problem& problem, const std::vector<std::uint32_t>& buffers) {
  Problem part;
  part.reserve(buffers.size());
  Tick origin = ~Tick{0};
  for (const std::uint32_t i : buffers) origin = std::min(origin, problem[i].lifetime.begin);
  for (const std::uint32_t i : buffers) {
    part.push_back(problem[i]);
    part.back().lifetime.begin -= origin;
    part.back().lifetime.end -= origin;
  }
  return part;
}

}  // namespace memoir
