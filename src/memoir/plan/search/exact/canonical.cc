// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/exact/canonical.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "memoir/plan/search/exact/decompose.h"

namespace memoir {
namespace {

constexpr std::size_t kMostSorted = 50'000;

auto place_of(const Buffer& buffer) {
  return std::tuple(buffer.lifetime.begin, buffer.lifetime.end, buffer.size, buffer.alignment);
}

std::vector<std::uint32_t> sorted(const Problem& problem) {
  std::vector<std::uint32_t> order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return place_of(problem[a]) < place_of(problem[b]); });
  return order;
}

Problem in_order(const Problem& problem, const std::vector<std::uint32_t>& order) {
  Problem out;
  out.reserve(problem.size());
  for (const std::uint32_t i : order) out.push_back(problem[i]);
  return out;
}

}  // namespace

Canonical canonical(const Problem& problem, const std::vector<std::uint32_t>& buffers) {
  Canonical out{extract(problem, buffers), buffers, {}};
  Sections sections = find_sections(out.problem);
  if (buffers.size() > kMostSorted) {
    const Tick origin = problem[buffers.front()].lifetime.begin;
    out.ticks = std::move(sections.tick);
    for (Tick& tick : out.ticks) tick += origin;
    return out;
  }
  const Tick origin = buffers.empty() ? 0 : problem[buffers.front()].lifetime.begin;
  for (std::size_t i = 0; i < out.problem.size(); ++i)
    out.problem[i].lifetime = {sections.first[i], sections.last[i]};
  out.ticks = std::move(sections.tick);
  for (Tick& tick : out.ticks) tick += origin;

  Problem backwards = out.problem;
  for (Buffer& buffer : backwards) {
    buffer.lifetime = {sections.count - buffer.lifetime.end, sections.count - buffer.lifetime.begin};
  }
  std::vector<std::uint32_t> order = sorted(out.problem);
  const std::vector<std::uint32_t> other_order = sorted(backwards);
  Problem one = in_order(out.problem, order), other = in_order(backwards, other_order);
  const bool turn = std::lexicographical_compare(
      other.begin(), other.end(), one.begin(), one.end(),
      [](const Buffer& a, const Buffer& b) { return place_of(a) < place_of(b); });
  if (turn) {
    order = other_order;
    one = std::move(other);
    std::reverse(out.ticks.begin(), out.ticks.end());
  }
  out.problem = std::move(one);
  for (std::size_t k = 0; k < order.size(); ++k) out.buffers[k] = buffers[order[k]];
  return out;
}

}  // namespace memoir
