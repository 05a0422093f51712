// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/index/gap_index.h"

#include <algorithm>

#include "memoir/plan/align.h"
#include "memoir/plan/stop_point.h"

namespace memoir {
namespace {

constexpr std::uint32_t kFanoutLog2 = 2;  // four: measured best of 2, 4 and 8 on 1,000 to 100,000 buffers
constexpr std::uint32_t kFanout = 1u << kFanoutLog2;
// With many columns the three levels below the root cover nothing: what lives through much of time is listed
// in each of up to 64 blocks instead, merged there with all else, and a question reads one list in place of
// several that fill each other's gaps (on a training pass with 62,000 live buffers: 20 times faster).
constexpr std::uint32_t kBlockLevels = 3;
constexpr std::size_t kFewColumns = 8192;
constexpr int kMostGaps = 128;  // that hold a buffer are compared: 62,000 live buffers leave thousands

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
  block_level_ = static_cast<std::uint32_t>(levels_.size() - 1);
  if (births.size() > kFewColumns) block_level_ -= kBlockLevels;
  lists_.reserve(8 * problem.size());
}

/// Calls whole(node) for the few largest nodes that make up the columns, and part(node) for every node above
/// those. No node above `top_level` is called.
template <class Whole, class Part>
void GapIndex::visit(Columns columns, std::uint32_t top_level, Whole whole, Part part) const {
  const std::uint32_t begin = columns.begin, end = columns.end;
  // The level's nodes that lie inside and were not visited as part of a larger one, ...
  std::uint32_t low = begin, high = end;
  // ... and its outermost nodes that hold any of the columns.
  std::uint32_t first = begin, last = end - 1;
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
      const bool top = level == top_level;
      const std::uint32_t next_low = (low + kFanout - 1) >> kFanoutLog2, next_high = high >> kFanoutLog2;
      if (top || next_low >= next_high) {
        for (; low < high; ++low) whole(base + low);
      } else {
        for (; low < next_low << kFanoutLog2; ++low) whole(base + low);
        for (low = next_high << kFanoutLog2; low < high; ++low) whole(base + low);
        low = next_low, high = next_high;
      }
    }
    if (level == top_level) return;
    first >>= kFanoutLog2, last >>= kFanoutLog2;
  }
}

void GapIndex::place(size_t index, Offset offset) {
  const Run run{offset, offset + problem_[index].size};
  const auto [begin, end] = columns_[index];
  visit(
      columns_[index], block_level_,
      [&](std::uint32_t node) {
        lists_.insert(nodes_[node].covering, run);
        lists_.insert(nodes_[node].touching, run);
      },
      [&](std::uint32_t node) { lists_.insert(nodes_[node].touching, run); });
  for (std::uint32_t level = block_level_ + 1; level < levels_.size(); ++level) {
    const std::uint32_t shift = kFanoutLog2 * level;
    for (std::uint32_t node = begin >> shift; node <= (end - 1) >> shift; ++node) {
      lists_.insert(nodes_[levels_[level] + node].touching, run);
    }
  }
}

/// A free range at or above `position`, the first but for some that are smaller than `size`; its end is ~0
/// above everything. Cursors only ever move up.
GapIndex::Run GapIndex::next_gap(Offset position, Size size) {
  const size_t count = cursors_.size();
  for (size_t quiet = 0, i = 0; quiet < count; i = i + 1 == count ? 0 : i + 1) {
    ++quiet;
    if (begins_[i] > position) continue;
    RunLists::Cursor& cursor = cursors_[i];
    cursor.seek(position);
    if (!cursor.done() && (*cursor).begin <= position) {
      // What is free for all is free in this list, so its own gaps that are too small are not worth a
      // question.
      position = cursor.pass(size);
      quiet = 1;
    }
    begins_[i] = cursor.done() ? ~Offset{0} : (*cursor).begin;
  }
  const Offset end = count == 0 ? ~Offset{0} : *std::min_element(begins_.begin(), begins_.end());
  return {position, end};
}

Offset GapIndex::find(size_t index, Fit fit) {
  cursors_.clear();
  const auto add = [&](const RunLists::List& list) {
    if (list.capacity != 0) cursors_.push_back(lists_.read(list));
  };
  visit(
      columns_[index], static_cast<std::uint32_t>(levels_.size() - 1),
      [&](std::uint32_t node) { add(nodes_[node].touching); },
      [&](std::uint32_t node) { add(nodes_[node].covering); });
  begins_.assign(cursors_.size(), 0);
  const Buffer& buffer = problem_[index];
  Size smallest = ~Size{0};
  Offset best = kNoOffset;
  int compared = 0;
  for (Run gap = next_gap(0, buffer.size);; gap = next_gap(gap.end, buffer.size)) {
    const Offset offset = align_to(gap.begin, buffer.alignment);
    if (gap.end == ~Offset{0}) return best == kNoOffset ? offset : best;
    if (offset >= gap.end || gap.end - offset < buffer.size) continue;
    if (fit == Fit::kFirst || gap.end - gap.begin == buffer.size) return offset;
    if (gap.end - gap.begin < smallest) {
      smallest = gap.end - gap.begin;
      best = offset;
    }
    if (++compared == kMostGaps) return best;
  }
}

Plan place_in_order(const Problem& problem, const std::vector<std::uint32_t>& order, Fit fit) {
  GapIndex index(problem);
  Plan plan{std::vector<Offset>(problem.size()), 0};
  for (const std::uint32_t i : order) {
    stop_point();
    plan.offsets[i] = index.find(i, fit);
    index.place(i, plan.offsets[i]);
    plan.arena_size = std::max(plan.arena_size, plan.offsets[i] + problem[i].size);
  }
  return plan;
}

}  // namespace memoir
