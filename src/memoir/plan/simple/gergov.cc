// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/simple/gergov.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "memoir/plan/index/gap_index.h"
#include "memoir/plan/index/waiting_index.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

using Order = std::vector<std::uint32_t>;

struct Loose {
  std::vector<Offset> offsets;
  Order order;  // of placement
};

/// Step 1: offsets at which buffers may still overlap.
Loose place_loosely(const Problem& problem) {
  // Which of several buffers is left open by the algorithm: the one that is born first.
  WaitingIndex waiting(problem,
                       [](const Buffer& a, const Buffer& b) { return a.lifetime.begin < b.lifetime.begin; });
  Loose loose{std::vector<Offset>(problem.size()), {}};
  std::map<Tick, Tick> intervals;               // begin -> end; disjoint, with holes where some were dropped
  std::set<std::pair<Offset, Tick>> by_height;  // (height, begin)
  const auto put = [&](Tick begin, Tick end, Offset height) {
    intervals[begin] = end;
    by_height.emplace(height, begin);
  };
  Lifetime span = problem[0].lifetime;
  for (const Buffer& buffer : problem) {
    span = {std::min(span.begin, buffer.lifetime.begin), std::max(span.end, buffer.lifetime.end)};
  }
  put(span.begin, span.end, 0);
  while (!waiting.empty()) {
    stop_point();
    const auto [height, begin] = *by_height.begin();
    by_height.erase(by_height.begin());
    const auto interval = intervals.find(begin);
    const Tick end = interval->second;
    // It may stick out as far as the neighbouring intervals that are still there.
    const auto next = std::next(interval);
    const Tick furthest = next == intervals.end() ? span.end : next->first;
    const Tick earliest = interval == intervals.begin() ? span.begin : std::prev(interval)->second;
    intervals.erase(interval);
    const std::uint32_t i = waiting.find(earliest, end, begin, furthest);
    if (i == WaitingIndex::kNone) continue;
    waiting.remove(i);
    const auto& [lifetime, size, alignment] = problem[i];
    loose.offsets[i] = height;
    loose.order.push_back(i);
    put(std::max(begin, lifetime.begin), std::min(end, lifetime.end), height + size);
    if (begin < lifetime.begin) put(begin, lifetime.begin, height);
    if (lifetime.end < end) put(lifetime.end, end, height);
  }
  return loose;
}

/// The live buffers, asked which of them overlap a range: a tree of the greatest ends over the buffers by
/// offset.
class LiveRanges {
 public:
  LiveRanges(const Problem& problem, const std::vector<Offset>& offsets)
      : rank_(problem.size()), by_offset_(problem.size()) {
    std::iota(by_offset_.begin(), by_offset_.end(), 0u);
    std::stable_sort(by_offset_.begin(), by_offset_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return offsets[a] < offsets[b]; });
    for (std::uint32_t rank = 0; rank < by_offset_.size(); ++rank) {
      rank_[by_offset_[rank]] = rank;
      sorted_.push_back(offsets[by_offset_[rank]]);
    }
    leaves_ = std::bit_ceil(static_cast<std::uint32_t>(problem.size()));
    greatest_end_.resize(2 * size_t{leaves_});
  }
  void set(std::uint32_t index, Offset end) {  // 0: no longer live
    std::uint32_t node = leaves_ + rank_[index];
    greatest_end_[node] = end;
    for (node /= 2; node > 0; node /= 2) {
      greatest_end_[node] = std::max(greatest_end_[2 * node], greatest_end_[2 * node + 1]);
    }
  }
  template <class Visit>
  void overlapping(const Range& range, Visit visit) const {
    const auto limit = std::lower_bound(sorted_.begin(), sorted_.end(), range.end()) - sorted_.begin();
    search(1, 0, leaves_, static_cast<std::uint32_t>(limit), range.begin, visit);
  }

 private:
  template <class Visit>
  void search(std::uint32_t node, std::uint32_t first, std::uint32_t width, std::uint32_t limit, Offset above,
              Visit& visit) const {
    if (first >= limit || greatest_end_[node] <= above) return;
    if (width == 1) return visit(by_offset_[first]);
    search(2 * node, first, width / 2, limit, above, visit);
    search(2 * node + 1, first + width / 2, width / 2, limit, above, visit);
  }

  Order rank_, by_offset_;
  std::vector<Offset> sorted_, greatest_end_;
  std::uint32_t leaves_ = 1;
};

/// For every buffer those that it overlaps in both time and address.
std::vector<Order> find_overlaps(const Problem& problem, const std::vector<Offset>& offsets) {
  Order births(problem.size());
  std::iota(births.begin(), births.end(), 0u);
  Order deaths = births;
  std::sort(births.begin(), births.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem[a].lifetime.begin < problem[b].lifetime.begin;
  });
  std::sort(deaths.begin(), deaths.end(), [&](std::uint32_t a, std::uint32_t b) {
    return problem[a].lifetime.end < problem[b].lifetime.end;
  });
  std::vector<Order> overlaps(problem.size());
  LiveRanges live(problem, offsets);
  auto death = deaths.begin();
  for (const std::uint32_t i : births) {
    stop_point();
    for (; death != deaths.end() && problem[*death].lifetime.end <= problem[i].lifetime.begin; ++death) {
      live.set(*death, 0);
    }
    const Range range{offsets[i], problem[i].size};
    live.overlapping(range, [&](std::uint32_t j) {
      overlaps[i].push_back(j);
      overlaps[j].push_back(i);
    });
    live.set(i, range.end());
  }
  return overlaps;
}

/// Step 2: the lowest colour that no overlapping buffer placed earlier has.
Order colour(const std::vector<Order>& overlaps, const Order& order) {
  constexpr std::uint32_t kUncoloured = ~std::uint32_t{0};
  Order colours(order.size(), kUncoloured);
  std::vector<bool> taken;
  for (const std::uint32_t i : order) {
    stop_point();
    taken.assign(overlaps[i].size() + 1, false);
    for (const std::uint32_t j : overlaps[i]) {
      if (colours[j] < taken.size()) taken[colours[j]] = true;
    }
    colours[i] = static_cast<std::uint32_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
  }
  return colours;
}

}  // namespace

Plan gergov(const Problem& problem) {
  validate(problem);
  if (problem.empty()) return {};
  Loose loose = place_loosely(problem);
  const Order colours = colour(find_overlaps(problem, loose.offsets), loose.order);
  // A storey per colour: the order of the offsets, which is all that step 3 needs, is that of (colour,
  // offset).
  std::stable_sort(loose.order.begin(), loose.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return colours[a] != colours[b] ? colours[a] < colours[b] : loose.offsets[a] < loose.offsets[b];
  });
  return place_in_order(problem, loose.order, Fit::kFirst);
}

}  // namespace memoir
