// SPDX-License-Identifier: Apache-2.0
//
// What an ExactSearch knows of a problem before it searches: sections and layers with their members, who
// lives with whom, who is alike, where obstacles lie. Made once, for all capacities and orders.
#include <algorithm>
#include <numeric>

#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {
namespace {

std::vector<Range> obstacles_of(const Stretches& stretches) {
  std::vector<Range> obstacles;
  for (std::size_t k = 0; k < stretches.obstacles.size(); ++k) obstacles.push_back(stretches.obstacle(k));
  return obstacles;
}

std::vector<Offset> ends_of(const std::vector<Range>& ranges) {
  std::vector<Offset> ends;
  for (const Range& range : ranges) ends.push_back(range.end());
  return ends;
}

}  // namespace

ExactSearch::ExactSearch(const Problem& problem)
    : problem_(problem),
      sections_(find_sections(problem)),
      stretch_begin_(problem.size() + 1),
      grid_(find_grid(problem)) {
  std::iota(stretch_begin_.begin(), stretch_begin_.end(), 0u);
}

ExactSearch::ExactSearch(const Problem& problem, const Stretches& stretches)
    : problem_(problem),
      sections_(find_sections(stretches.pieces)),
      stretch_begin_(stretches.begin),
      obstacles_(obstacles_of(stretches)),
      grid_(find_grid(problem, ends_of(obstacles_))) {}

bool ExactSearch::live_together(std::uint32_t a, std::uint32_t b) const {
  std::uint32_t p = stretch_begin_[a], q = stretch_begin_[b];
  while (p < stretch_begin_[a + 1] && q < stretch_begin_[b + 1]) {
    if (sections_.last[p] <= sections_.first[q]) ++p;
    else if (sections_.last[q] <= sections_.first[p]) ++q;
    else return true;
  }
  return false;
}

void ExactSearch::prepare() {
  const auto n = static_cast<std::uint32_t>(problem_.size());
  if (position_.size() == n) return;
  const std::uint32_t m = sections_.count;
  first_.resize(n);
  last_.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    first_[i] = sections_.first[stretch_begin_[i]];
    last_[i] = sections_.last[stretch_begin_[i + 1] - 1];
  }
  for (auto* v : {&twin_, &position_, &rank_}) v->assign(n, kNone);
  for (auto* v : {&size_, &alignment_, &latest_, &contact_, &lowest_, &at_, &most_}) v->assign(n, 0);
  width_.assign(n, 0);
  prepare_layers();
  const auto all = static_cast<std::uint32_t>(m * (1 + layers_.size()));
  member_begin_.assign(all + 1, 0);
  for (std::uint32_t i = 0; i < n; ++i) {
    const Buffer& buffer = problem_[i];
    size_[i] = static_cast<Units>(grid_.padded(buffer.size) / grid_.unit);
    alignment_[i] =
        grid_.unit % buffer.alignment == 0 ? 1 : static_cast<Units>(buffer.alignment / grid_.unit);
    each_section(i, [&](std::uint32_t s) { ++member_begin_[s + 1]; });
    each_layer(i, [&](const Layer&, std::uint32_t base, Units) {
      each_section(i, [&](std::uint32_t s) { ++member_begin_[base + s + 1]; });
    });
  }
  for (std::uint32_t s = 0; s < all; ++s) member_begin_[s + 1] += member_begin_[s];
  section_members_.resize(member_begin_[all]);
  std::vector<std::uint32_t> fill(member_begin_.begin(), member_begin_.end() - 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    each_section(i, [&](std::uint32_t s) { section_members_[fill[s]++] = i; });
    each_layer(i, [&](const Layer&, std::uint32_t base, Units) {
      each_section(i, [&](std::uint32_t s) { section_members_[fill[base + s]++] = i; });
    });
  }

  prepare_obstacles();
  // By first section, i meets of the followers those that start before it ends, unless in a gap.
  std::vector<std::uint32_t> by_first(n);
  std::iota(by_first.begin(), by_first.end(), 0u);
  std::stable_sort(by_first.begin(), by_first.end(), [&](auto a, auto b) { return first_[a] < first_[b]; });
  const bool plain = stretch_begin_[n] == n;  // without gaps
  const auto each_pair = [&](auto visit) {
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint32_t i = by_first[k];
      for (std::uint32_t l = k + 1; l < n && first_[by_first[l]] < last_[i]; ++l) {
        if (plain || live_together(i, by_first[l])) visit(i, by_first[l]);
      }
    }
  };
  neighbour_begin_.assign(n + 1, 0);
  each_pair([&](auto i, auto j) { ++neighbour_begin_[i + 1], ++neighbour_begin_[j + 1]; });
  for (std::uint32_t i = 0; i < n; ++i) neighbour_begin_[i + 1] += neighbour_begin_[i];
  neighbours_.resize(neighbour_begin_[n]);
  fill.assign(neighbour_begin_.begin(), neighbour_begin_.end() - 1);
  each_pair([&](auto i, auto j) { neighbours_[fill[i]++] = j, neighbours_[fill[j]++] = i; });

  const auto same_sections = [&](std::uint32_t i, std::uint32_t j) {
    const std::uint32_t stretches = stretch_begin_[i + 1] - stretch_begin_[i];
    bool same = stretches == stretch_begin_[j + 1] - stretch_begin_[j];
    for (std::uint32_t k = 0; same && k < stretches; ++k) {
      const std::uint32_t p = stretch_begin_[i] + k, q = stretch_begin_[j] + k;
      same = sections_.first[p] == sections_.first[q] && sections_.last[p] == sections_.last[q];
    }
    return same;
  };
  // Buffers that are alike are placed in the problem's order: the first of them lower.
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t k = neighbour_begin_[i]; k < neighbour_begin_[i + 1]; ++k) {
      const std::uint32_t j = neighbours_[k];
      if (j < i && (twin_[i] == kNone || j > twin_[i]) && same_sections(i, j) &&
          problem_[j].size == problem_[i].size && alignment_[j] == alignment_[i]) {
        twin_[i] = j;
      }
    }
  }
  trail_.reserve(neighbours_.size() / 2 + 4 * n + 64);
  candidates_.reserve(std::size_t{64} * n + 1024);
  frames_.reserve(2 * std::size_t{n} + 2);
  old_ranks_.reserve(std::size_t{4} * n + 64);
}

// Steps above the grid's, without obstacles, which may lie anywhere between them.
void ExactSearch::prepare_layers() {
  layers_.clear();
  if (!obstacles_.empty()) return;
  for (const Size step : alignment_steps(problem_)) {
    if (grid_.unit % step != 0) layers_.push_back({step, static_cast<Units>(step / grid_.unit)});
  }
}

void ExactSearch::prepare_obstacles() {
  const auto n = static_cast<std::uint32_t>(problem_.size());
  const auto first_obstacle = static_cast<std::uint32_t>(sections_.first.size() - obstacles_.size());
  blocked_.clear();
  blocked_begin_.assign(1, 0);
  // Joins what touches in list[begin, ...), sorted by its begin.
  const auto join = [](std::vector<Interval>& list, std::size_t begin) {
    std::sort(list.begin() + static_cast<std::ptrdiff_t>(begin), list.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    std::size_t last = begin;
    for (std::size_t k = begin + 1; k < list.size(); ++k) {
      if (list[k].begin <= list[last].end) list[last].end = std::max(list[last].end, list[k].end);
      else list[++last] = list[k];
    }
    if (begin < list.size()) list.resize(last + 1);
  };
  const auto meets = [&](std::uint32_t i, std::uint32_t obstacle) {
    for (std::uint32_t p = stretch_begin_[i]; p < stretch_begin_[i + 1]; ++p) {
      if (sections_.first[p] < sections_.last[obstacle] && sections_.first[obstacle] < sections_.last[p])
        return true;
    }
    return false;
  };
  for (std::uint32_t i = 0; i < n && !obstacles_.empty(); ++i) {
    for (std::uint32_t k = 0; k < obstacles_.size(); ++k) {
      if (!meets(i, first_obstacle + k)) continue;
      const Range& range = obstacles_[k];
      const Size size = problem_[i].size;
      // It starts at one of its alignment's places on the grid, and ends below by its size without padding.
      const Units begin = range.begin < size ? 0 : static_cast<Units>((range.begin - size) / grid_.unit) + 1;
      const Units a = alignment_[i], end = static_cast<Units>(grid_.padded(range.end()) / grid_.unit);
      blocked_.push_back({begin, (end + a - 1) / a * a});
    }
    join(blocked_, blocked_begin_.back());
    blocked_begin_.push_back(static_cast<std::uint32_t>(blocked_.size()));
  }
  taken_.clear();
  taken_begin_.assign(1, 0);
  for (std::uint32_t s = 0; s < sections_.count; ++s) {
    for (std::uint32_t k = 0; k < obstacles_.size(); ++k) {
      if (s < sections_.first[first_obstacle + k] || s >= sections_.last[first_obstacle + k]) continue;
      const Range& range = obstacles_[k];
      taken_.push_back({static_cast<Units>(grid_.padded(range.begin) / grid_.unit),
                        static_cast<Units>(grid_.padded(range.end()) / grid_.unit)});
    }
    join(taken_, taken_begin_.back());
    taken_begin_.push_back(static_cast<std::uint32_t>(taken_.size()));
  }
}

}  // namespace memoir
