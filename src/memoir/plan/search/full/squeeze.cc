// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/search/full/squeeze.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace memoir {
namespace {

constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
constexpr std::size_t kFewBends = 32;
constexpr double kNothing = 1e-6;  // costs are sums of floating-point numbers

}  // namespace

Squeeze::Squeeze(const Problem& problem, const Sections& sections, const Grid& grid, std::uint64_t seed)
    : unit_(grid.unit), random_(seed), size_(problem.size()), at_(problem.size()) {
  const auto n = static_cast<std::uint32_t>(problem.size());
  for (std::uint32_t i = 0; i < n; ++i)
    size_[i] = static_cast<Units>(grid.padded(problem[i].size) / grid.unit);
  std::vector<std::uint32_t> by_first(n);
  std::iota(by_first.begin(), by_first.end(), 0u);
  std::stable_sort(by_first.begin(), by_first.end(),
                   [&](auto a, auto b) { return sections.first[a] < sections.first[b]; });
  const auto each_pair = [&](auto visit) {
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint32_t i = by_first[k];
      for (std::uint32_t l = k + 1; l < n && sections.first[by_first[l]] < sections.last[i]; ++l)
        visit(i, by_first[l]);
    }
  };
  link(each_pair);
}

Squeeze::Squeeze(const std::vector<Size>& sizes,
                 const std::vector<std::pair<std::uint32_t, std::uint32_t>>& meet, Size unit,
                 std::uint64_t seed)
    : unit_(unit), random_(seed), at_(sizes.size()) {
  for (const Size size : sizes) size_.push_back(static_cast<Units>(size / unit));
  link([&](auto visit) {
    for (const auto& [a, b] : meet) visit(a, b);
  });
}

// Visits each pair once, in the same order every time.
template <class EachPair>
void Squeeze::link(const EachPair& each_pair) {
  const auto n = static_cast<std::uint32_t>(size_.size());
  begin_.assign(n + 1, 0);
  each_pair([&](auto i, auto j) { ++begin_[i + 1], ++begin_[j + 1]; });
  for (std::uint32_t i = 0; i < n; ++i) begin_[i + 1] += begin_[i];
  other_.resize(begin_[n]);
  back_.resize(begin_[n]);
  std::vector<std::uint32_t> fill(begin_.begin(), begin_.end() - 1);
  each_pair([&](auto i, auto j) {
    back_[fill[i]] = fill[j];
    back_[fill[j]] = fill[i];
    other_[fill[i]++] = j;
    other_[fill[j]++] = i;
  });
  where_.assign(n, kNoSlot);
  count_.assign(n, 0);
}

void Squeeze::start(const std::vector<Offset>& offsets, Size height) {
  height_ = static_cast<Units>(height / unit_);
  weight_.assign(other_.size(), 1);
  bad_.clear();
  for (std::uint32_t i = 0; i < size_.size(); ++i) {
    at_[i] = std::min(static_cast<Units>(offsets[i] / unit_), height_ - size_[i]);
    where_[i] = kNoSlot;
  }
  for (std::uint32_t i = 0; i < size_.size(); ++i) {
    count_[i] = 0;
    for (std::uint32_t k = begin_[i]; k < begin_[i + 1]; ++k) count_[i] += overlap(i, other_[k]) > 0;
    mark(i, count_[i] > 0);
  }
}

bool Squeeze::run(std::uint64_t moves, const SearchLimits& limits, std::uint64_t& work) {
  const auto stopped = [&] {
    return (limits.stop && limits.stop->load(std::memory_order_relaxed)) ||
           (limits.enough && limits.enough->load(std::memory_order_relaxed)) ||
           std::chrono::steady_clock::now() >= limits.deadline;
  };
  for (std::uint64_t k = 0; k < moves && !bad_.empty(); ++k) {
    if (k % 64 == 63 && stopped()) break;
    ++work;
    step(bad_[random_.below(bad_.size())]);
  }
  return bad_.empty();
}

std::vector<Offset> Squeeze::offsets() const {
  std::vector<Offset> offsets(at_.size());
  for (std::size_t i = 0; i < at_.size(); ++i) offsets[i] = static_cast<Offset>(at_[i]) * unit_;
  return offsets;
}

void Squeeze::mark(std::uint32_t buffer, bool overlaps) {
  if (overlaps == (where_[buffer] != kNoSlot) || (!pinned_.empty() && pinned_[buffer])) return;
  if (overlaps) {
    where_[buffer] = static_cast<std::uint32_t>(bad_.size());
    bad_.push_back(buffer);
    return;
  }
  bad_[where_[buffer]] = bad_.back();
  where_[bad_.back()] = where_[buffer];
  where_[buffer] = kNoSlot;
  bad_.pop_back();
}

// To the offset where it overlaps least, of several to any. As a function of the offset, what it shares with
// another rises, is level, and falls, so the sum is least at one of the bends.
void Squeeze::step(std::uint32_t buffer) {
  const Units size = size_[buffer], highest = height_ - size;
  bends_.clear();
  double here = 0, cost = 0, slope = 0;  // now; at the offset under consideration
  for (std::uint32_t k = begin_[buffer]; k < begin_[buffer + 1]; ++k) {
    const std::uint32_t j = other_[k];
    const double weight = weight_[k];
    const Units bottom = at_[j], top = bottom + size_[j];
    here += weight * static_cast<double>(std::max<Units>(0, overlap(buffer, j)));
    cost += weight * static_cast<double>(std::max<Units>(0, std::min(size, top) - bottom));
    const auto bend = [&](Units at, double by) {
      if (at <= 0) slope += by;
      else if (at < highest) bends_.push_back({at, by});
    };
    bend(bottom - size, weight);
    bend(std::min(bottom, top - size), -weight);
    bend(std::max(bottom, top - size), -weight);
    bend(top, weight);
  }
  sort_bends(highest);
  double least = cost;
  Units best = 0, at = 0;
  std::uint64_t equals = 1;
  const auto look = [&] {
    if (cost < least - kNothing) least = cost, best = at, equals = 1;
    else if (cost <= least + kNothing && random_.below(++equals) == 0) best = at;
  };
  for (const Bend& bend : bends_) {
    cost += slope * static_cast<double>(bend.at - at);
    at = bend.at;
    slope += bend.slope;
    look();
  }
  cost += slope * static_cast<double>(highest - at);
  at = highest;
  look();
  if (least <= here + kNothing && best != at_[buffer]) move(buffer, best);
  if (count_[buffer] == 0) return;
  // Whom it still overlaps is dearer from now on, most of all the one it overlaps most.
  Units most = 0;
  for (std::uint32_t k = begin_[buffer]; k < begin_[buffer + 1]; ++k)
    most = std::max(most, overlap(buffer, other_[k]));
  for (std::uint32_t k = begin_[buffer]; k < begin_[buffer + 1]; ++k) {
    const Units shared = overlap(buffer, other_[k]);
    if (shared <= 0) continue;
    weight_[k] += static_cast<float>(shared) / static_cast<float>(most);
    weight_[back_[k]] = weight_[k];
  }
}

// By where they are. They lie all over the height, so that a bin of as many holds about one.
void Squeeze::sort_bends(Units highest) {
  const auto earlier = [](const Bend& a, const Bend& b) { return a.at < b.at; };
  if (bends_.size() < kFewBends) {
    std::sort(bends_.begin(), bends_.end(), earlier);
    return;
  }
  const double bins_of_unit = static_cast<double>(bends_.size()) / static_cast<double>(highest + 1);
  const auto bin = [&](const Bend& bend) {
    return static_cast<std::size_t>(static_cast<double>(bend.at) * bins_of_unit);
  };
  bins_.assign(bends_.size() + 1, 0);
  for (const Bend& bend : bends_) ++bins_[bin(bend) + 1];
  for (std::size_t k = 1; k < bins_.size(); ++k) bins_[k] += bins_[k - 1];
  sorted_.resize(bends_.size());
  for (const Bend& bend : bends_) sorted_[bins_[bin(bend)]++] = bend;
  std::uint32_t begin = 0;
  for (std::size_t k = 0; k + 1 < bins_.size(); ++k) {
    if (bins_[k] > begin + 1) std::sort(sorted_.begin() + begin, sorted_.begin() + bins_[k], earlier);
    begin = bins_[k];
  }
  bends_.swap(sorted_);
}

void Squeeze::move(std::uint32_t buffer, Units to) {
  const Units from = at_[buffer], size = size_[buffer];
  std::uint32_t count = 0;
  for (std::uint32_t k = begin_[buffer]; k < begin_[buffer + 1]; ++k) {
    const std::uint32_t j = other_[k];
    const Units bottom = at_[j], top = bottom + size_[j];
    const bool before = from < top && bottom < from + size, after = to < top && bottom < to + size;
    count += after;
    if (before == after) continue;
    count_[j] += after ? 1u : ~0u;
    mark(j, count_[j] > 0);
  }
  at_[buffer] = to;
  count_[buffer] = count;
  mark(buffer, count > 0);
}

}  // namespace memoir
