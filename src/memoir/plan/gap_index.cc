// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/gap_index.h"

#include <algorithm>
#include <bit>

#include "memoir/plan/align.h"

namespace memoir {
namespace {

constexpr std::uint32_t kFanoutLog2 = 2;  // four: measured best of 2, 4 and 8 on 1,000 to 100,000 buffers
constexpr std::uint32_t kFanout = 1u << kFanoutLog2;

}  // namespace

GapIndex::GapIndex(const Problem& problem) : problem_(problem), columns_(problem.size()) {
  std::vector<Tick> births;
  births.reserve(problem.size());
  for (const Buffer& buffer : problem) births.push_back(buffer.lifetime.begin);
  if (!std::is_sorted(births.begin(), births.end())) std::sort(births.begin(), births.end());
  births.erase(std::unique(births.begin(), births.end()), births.end());
  const auto column = [&](Tick tick) {
    return static_cast<std::uint32_t>(std::lower_bound(births.begin(), births.end(), tick) - births.begin());
  };
  for (size_t i = 0; i < problem.size(); ++i) {
    columns_[i] = {column(problem[i].lifetime.begin), column(problem[i].lifetime.end)};
  }
  std::uint32_t count = 0;
  for (auto width = static_cast<std::uint32_t>(births.size());;
       width = (width + kFanout - 1) >> kFanoutLog2) {
    levels_.push_back(count);
    count += width;
    if (width <= 1) break;
  }
  nodes_.resize(count);
  runs_.reserve(8 * problem.size());
}

/// Calls whole(node) for the few largest nodes that make up the columns, and part(node) for every node above
/// those.
template <class Whole, class Part>
void GapIndex::visit(Columns columns, Whole whole, Part part) const {
  const auto [begin, end] = columns;
  std::uint32_t low = begin,
                high = end;  // the level's nodes that lie inside and were not visited as part of a larger
  std::uint32_t first = begin, last = end - 1;  // the level's outermost nodes that hold any of the columns
  for (std::uint32_t level = 0;; ++level) {
    const std::uint32_t base = levels_[level];
    if (level != 0) {
      const std::uint32_t shift = kFanoutLog2 * level;
      const auto partial = [&](std::uint32_t node) {
        return node << shift < begin || (node + 1) << shift > end;
      };
      if (partial(first)) part(base + first);
      if (last != first && partial(last)) part(base + last);
    }
    if (low < high) {
      const bool top = level + 1 == levels_.size();
      const std::uint32_t next_low = (low + kFanout - 1) >> kFanoutLog2, next_high = high >> kFanoutLog2;
      if (top || next_low >= next_high) {
        for (; low < high; ++low) whole(base + low);
      } else {
        for (; low < next_low << kFanoutLog2; ++low) whole(base + low);
        for (low = next_high << kFanoutLog2; low < high; ++low) whole(base + low);
        low = next_low, high = next_high;
      }
    }
    if (level + 1 == levels_.size()) return;
    first >>= kFanoutLog2, last >>= kFanoutLog2;
  }
}

void GapIndex::grow(RunList& list) {
  const std::uint32_t capacity = list.capacity == 0 ? 2 : list.capacity * 2;
  auto& recycled = free_[std::countr_zero(capacity)];
  std::uint32_t first;
  if (!recycled.empty()) {
    first = recycled.back();
    recycled.pop_back();
  } else {
    first = static_cast<std::uint32_t>(runs_.size());
    runs_.resize(runs_.size() + capacity);
  }
  std::copy_n(runs_.begin() + list.first, list.count, runs_.begin() + first);
  if (list.capacity != 0) free_[std::countr_zero(list.capacity)].push_back(list.first);
  list.first = first;
  list.capacity = capacity;
}

void GapIndex::insert(RunList& list, Run run) {
  const auto begin = runs_.begin() + list.first, end = begin + list.count;
  // The runs in [low, high) overlap or touch the new one and merge with it.
  const auto low = std::partition_point(begin, end, [&](const Run& other) { return other.end < run.begin; });
  auto high = low;
  while (high != end && high->begin <= run.end) ++high;
  if (high != low) {
    *low = {std::min(low->begin, run.begin), std::max((high - 1)->end, run.end)};
    std::copy(high, end, low + 1);
    list.count -= static_cast<std::uint32_t>(high - low - 1);
    return;
  }
  const auto position = low - begin;
  if (list.count == list.capacity) grow(list);
  const auto room = runs_.begin() + list.first;
  std::copy_backward(room + position, room + list.count, room + list.count + 1);
  room[position] = run;
  ++list.count;
}

void GapIndex::place(size_t index, Offset offset) {
  const Run run{offset, offset + problem_[index].size};
  visit(
      columns_[index],
      [&](std::uint32_t node) {
        insert(nodes_[node].covering, run);
        insert(nodes_[node].touching, run);
      },
      [&](std::uint32_t node) { insert(nodes_[node].touching, run); });
}

void GapIndex::add_cursor(const RunList& list) {
  if (list.count != 0) cursors_.push_back({&runs_[list.first], &runs_[list.first] + list.count});
}

/// A free range at or above `position`, the first but for some that are smaller than `size`; its end is ~0
/// above everything. Cursors only ever move up.
GapIndex::Run GapIndex::next_gap(Offset position, Size size) {
  for (size_t quiet = 0, i = 0; quiet < cursors_.size(); i = i + 1 == cursors_.size() ? 0 : i + 1) {
    Cursor& cursor = cursors_[i];
    if (cursor.at != cursor.end && cursor.at->end <= position) {
      if (++cursor.at != cursor.end && cursor.at->end <= position) {
        cursor.at =
            std::partition_point(cursor.at, cursor.end, [&](const Run& run) { return run.end <= position; });
      }
    }
    if (cursor.at != cursor.end && cursor.at->begin <= position) {
      // What is free for all is free in this list, so its own gaps that are too small are not worth a
      // question.
      do position = (cursor.at++)->end;
      while (cursor.at != cursor.end && cursor.at->begin - position < size);
      quiet = 1;
    } else {
      ++quiet;
    }
  }
  Offset end = ~Offset{0};
  for (const Cursor& cursor : cursors_) {
    if (cursor.at != cursor.end) end = std::min(end, cursor.at->begin);
  }
  return {position, end};
}

Offset GapIndex::find(size_t index, Fit fit) {
  cursors_.clear();
  visit(
      columns_[index], [&](std::uint32_t node) { add_cursor(nodes_[node].touching); },
      [&](std::uint32_t node) { add_cursor(nodes_[node].covering); });
  const Buffer& buffer = problem_[index];
  Size smallest = ~Size{0};
  Offset best = kNoOffset;
  for (Run gap = next_gap(0, buffer.size);; gap = next_gap(gap.end, buffer.size)) {
    const Offset offset = align_to(gap.begin, buffer.alignment);
    if (gap.end == ~Offset{0}) return best == kNoOffset ? offset : best;
    if (offset >= gap.end || gap.end - offset < buffer.size) continue;
    if (fit == Fit::kFirst || gap.end - gap.begin == buffer.size) return offset;
    if (gap.end - gap.begin < smallest) {
      smallest = gap.end - gap.begin;
      best = offset;
    }
  }
}

Plan place_in_order(const Problem& problem, const std::vector<std::uint32_t>& order, Fit fit) {
  GapIndex index(problem);
  Plan plan{std::vector<Offset>(problem.size()), 0};
  for (const std::uint32_t i : order) {
    plan.offsets[i] = index.find(i, fit);
    index.place(i, plan.offsets[i]);
    plan.arena_size = std::max(plan.arena_size, plan.offsets[i] + problem[i].size);
  }
  return plan;
}

}  // namespace memoir
