// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/index/waiting_index.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace memoir {

WaitingIndex::WaitingIndex(const Problem& problem,
                           const std::function<bool(const Buffer&, const Buffer&)>& better)
    : leaf_of_(problem.size()), by_rank_(problem.size()) {
  std::iota(by_rank_.begin(), by_rank_.end(), 0u);
  std::vector<std::uint32_t> by_birth = by_rank_;
  std::stable_sort(by_birth.begin(), by_birth.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem[a].lifetime.begin < problem[b].lifetime.begin;
  });
  std::stable_sort(by_rank_.begin(), by_rank_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return better(problem[a], problem[b]); });
  leaves_ = std::bit_ceil(std::max<std::uint32_t>(1, static_cast<std::uint32_t>(problem.size())));
  nodes_.resize(2 * size_t{leaves_});
  for (std::uint32_t leaf = 0; leaf < by_birth.size(); ++leaf) {
    const Lifetime& lifetime = problem[by_birth[leaf]].lifetime;
    births_.push_back(lifetime.begin);
    leaf_of_[by_birth[leaf]] = leaf;
    nodes_[leaves_ + leaf].least_end = nodes_[leaves_ + leaf].greatest_end = lifetime.end;
  }
  for (std::uint32_t rank = 0; rank < by_rank_.size(); ++rank) {
    nodes_[leaves_ + leaf_of_[by_rank_[rank]]].rank = rank;
  }
  for (std::uint32_t node = leaves_ - 1; node > 0; --node) nodes_[node] = join(node);
}

WaitingIndex::Node WaitingIndex::join(std::uint32_t parent) const {
  const Node &a = nodes_[2 * parent], &b = nodes_[2 * parent + 1];
  return {std::min(a.least_end, b.least_end), std::max(a.greatest_end, b.greatest_end),
          std::min(a.rank, b.rank)};
}

void WaitingIndex::remove(std::uint32_t index) {
  std::uint32_t node = leaves_ + leaf_of_[index];
  nodes_[node] = {};
  for (node /= 2; node > 0; node /= 2) {
    nodes_[node] = join(node);
  }
}

void WaitingIndex::search(std::uint32_t node, std::uint32_t first, std::uint32_t width, Query& query) const {
  const Node& here = nodes_[node];
  if (here.rank >= query.rank || here.least_end > query.end_high || here.greatest_end <= query.end_low)
    return;
  if (first >= query.end || first + width <= query.begin) return;
  if (width == 1) {
    query.rank = here.rank;
    return;
  }
  const std::uint32_t half = width / 2;
  if (nodes_[2 * node].rank < nodes_[2 * node + 1].rank) {
    search(2 * node, first, half, query);
    search(2 * node + 1, first + half, half, query);
  } else {
    search(2 * node + 1, first + half, half, query);
    search(2 * node, first, half, query);
  }
}

std::uint32_t WaitingIndex::find(Tick begin_low, Tick begin_high, Tick end_low, Tick end_high) const {
  const auto leaf = [&](Tick tick) {
    return static_cast<std::uint32_t>(std::lower_bound(births_.begin(), births_.end(), tick) -
                                      births_.begin());
  };
  Query query{leaf(begin_low), leaf(begin_high), end_low, end_high, kNone};
  search(1, 0, leaves_, query);
  return query.rank == kNone ? kNone : by_rank_[query.rank];
}

}  // namespace memoir
