// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/index/fit_index.h"

#include <algorithm>
#include <bit>

#include "memoir/plan/align.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr std::uint64_t kManyLive = 400;  // per section, on average

std::uint32_t shift_of(const Sections& sections, std::uint32_t buffer) {
  return static_cast<std::uint32_t>(std::bit_width(sections.last[buffer] - sections.first[buffer]) - 1);
}

}  // namespace

FitIndex::FitIndex(const Problem& problem, const Sections& sections)
    : problem_(problem), sections_(sections), entries_(problem.size()), where_(problem.size(), kAbsent) {
  const auto n = static_cast<std::uint32_t>(problem.size());
  std::vector<bool> present(33);
  for (std::uint32_t i = 0; i < n; ++i) present[shift_of(sections, i)] = true;
  level_of_shift_.resize(33);
  std::uint32_t base = 0;
  for (std::uint32_t shift = 0; shift < 33; ++shift) {
    if (!present[shift]) continue;
    level_of_shift_[shift] = static_cast<std::uint32_t>(levels_.size());
    levels_.push_back({shift, ((sections.count - 1) >> shift) + 1, base});
    base += levels_.back().buckets;
  }
  bucket_begin_.assign(base + 1, 0);
  used_.assign(base, 0);
  stop_point();
  for (std::uint32_t i = 0; i < n; ++i) ++bucket_begin_[bucket_of(i) + 1];
  stop_point();
  for (std::uint32_t b = 0; b < base; ++b) bucket_begin_[b + 1] += bucket_begin_[b];
}

std::uint32_t FitIndex::bucket_of(std::uint32_t buffer) const {
  const Level& level = levels_[level_of_shift_[shift_of(sections_, buffer)]];
  return level.base + (sections_.first[buffer] >> level.shift);
}

void FitIndex::insert(std::uint32_t buffer, Offset offset) {
  const std::uint32_t bucket = bucket_of(buffer);
  where_[buffer] = bucket_begin_[bucket] + used_[bucket]++;
  entries_[where_[buffer]] = {sections_.first[buffer], sections_.last[buffer], offset,
                              offset + problem_[buffer].size, buffer};
}

void FitIndex::erase(std::uint32_t buffer) {
  const std::uint32_t bucket = bucket_of(buffer);
  const Entry& last = entries_[bucket_begin_[bucket] + --used_[bucket]];
  where_[last.buffer] = where_[buffer];
  entries_[where_[buffer]] = last;
  where_[buffer] = kAbsent;
}

void FitIndex::clear() {
  std::fill(used_.begin(), used_.end(), 0u);
  std::fill(where_.begin(), where_.end(), kAbsent);
}

void FitIndex::gather(std::uint32_t buffer) {
  found_.clear();
  each_neighbour(buffer, [&](std::uint32_t, Offset begin, Offset end) { found_.emplace_back(begin, end); });
}

Offset FitIndex::first_fit(std::uint32_t buffer) {
  gather(buffer);
  return lowest_gap(found_, problem_[buffer].size, problem_[buffer].alignment);
}

Offset FitIndex::best_fit(std::uint32_t buffer) {
  gather(buffer);
  return tightest_gap(found_, problem_[buffer].size, problem_[buffer].alignment);
}

Offset tightest_gap(std::vector<std::pair<Offset, Offset>>& occupied, Size size, Size alignment) {
  std::sort(occupied.begin(), occupied.end());
  Offset at = 0, best = kNoOffset;
  Size tightest = ~Size{0};
  for (const auto& [begin, end] : occupied) {
    if (begin >= at && begin - at >= size && begin - at < tightest) {
      tightest = begin - at;
      best = at;
    }
    if (end > at) at = align_to(end, alignment);
  }
  return best == kNoOffset ? at : best;
}

Offset lowest_gap(std::vector<std::pair<Offset, Offset>>& occupied, Size size, Size alignment) {
  std::sort(occupied.begin(), occupied.end());
  Offset at = 0;
  for (const auto& [begin, end] : occupied) {
    if (begin >= at && begin - at >= size) return at;
    if (end > at) at = align_to(end, alignment);
  }
  return at;
}

bool lives_long(const Sections& sections) {
  std::uint64_t live = 0;
  for (std::size_t i = 0; i < sections.first.size(); ++i) live += sections.last[i] - sections.first[i];
  return live > kManyLive * sections.count;
}

std::vector<Offset> fit_in_order(const Problem& problem, const Sections& sections, const Order& order,
                                 bool best) {
  std::vector<Offset> offsets(problem.size());
  if (problem.empty()) return offsets;
  FitIndex index(problem, sections);
  for (const std::uint32_t i : order) {
    stop_point();
    offsets[i] = best ? index.best_fit(i) : index.first_fit(i);
    index.insert(i, offsets[i]);
  }
  return offsets;
}

Size arena_size(const Problem& problem, const std::vector<Offset>& offsets) {
  Size size = 0;
  for (std::size_t i = 0; i < problem.size(); ++i) size = std::max(size, offsets[i] + problem[i].size);
  return size;
}

}  // namespace memoir
