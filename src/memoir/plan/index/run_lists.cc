// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/index/run_lists.h"

#include <algorithm>
#include <bit>

namespace memoir {
namespace {

using Run = RunLists::Run;

/// Adds a run to `count` sorted ones with room for one more; the number there are afterwards.
std::uint32_t insert_sorted(Run* runs, std::uint32_t count, Run run) {
  Run* const end = runs + count;
  // The runs in [low, high) overlap or touch the new one and merge with it.
  Run* const low = std::partition_point(runs, end, [&](const Run& other) { return other.end < run.begin; });
  Run* high = low;
  while (high != end && high->begin <= run.end) ++high;
  if (high == low) {
    std::copy_backward(low, end, end + 1);
    *low = run;
    return count + 1;
  }
  *low = {std::min(low->begin, run.begin), std::max((high - 1)->end, run.end)};
  std::copy(high, end, low + 1);
  return count - static_cast<std::uint32_t>(high - low - 1);
}

}  // namespace

void RunLists::insert(List& list, Run run) {
  if (list.capacity == kLarge) return insert_large(large_[list.first], run);
  if (list.count == list.capacity) grow(list);
  if (list.capacity == kLarge) return insert_large(large_[list.first], run);
  list.count = insert_sorted(&runs_[list.first], list.count, run);
}

void RunLists::grow(List& list) {
  const std::uint32_t capacity = list.capacity == 0 ? 2 : list.capacity * 2;
  if (list.capacity != 0) free_[std::countr_zero(list.capacity)].push_back(list.first);
  if (capacity > kRoom) {
    large_.emplace_back();
    const std::uint32_t half = list.count / 2;
    add_leaf(large_.back(), 0, &runs_[list.first], half);
    add_leaf(large_.back(), 1, &runs_[list.first + half], list.count - half);
    list = {static_cast<std::uint32_t>(large_.size() - 1), 0, kLarge};
    return;
  }
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
  list.first = first;
  list.capacity = capacity;
}

void RunLists::add_leaf(Large& list, std::size_t at, const Run* runs, std::uint32_t count) {
  std::uint32_t leaf;
  if (!free_leaves_.empty()) {
    leaf = free_leaves_.back();
    free_leaves_.pop_back();
  } else {
    leaf = static_cast<std::uint32_t>(leaves_.size());
    leaves_.emplace_back();
  }
  std::copy_n(runs, count, leaves_[leaf].begin());
  const auto place = static_cast<std::ptrdiff_t>(at);
  list.leaves.insert(list.leaves.begin() + place, leaf);
  list.count.insert(list.count.begin() + place, count);
  for (auto* column : {&list.begin, &list.end, &list.widest}) column->insert(column->begin() + place, 0);
  describe(list, at);
}

void RunLists::drop_leaves(Large& list, std::size_t begin, std::size_t end) {
  for (std::size_t k = begin; k < end; ++k) free_leaves_.push_back(list.leaves[k]);
  const auto erase = [&](auto& column) {
    column.erase(column.begin() + static_cast<std::ptrdiff_t>(begin),
                 column.begin() + static_cast<std::ptrdiff_t>(end));
  };
  erase(list.leaves), erase(list.count), erase(list.begin), erase(list.end), erase(list.widest);
}

void RunLists::describe(Large& list, std::size_t leaf) {
  const Run* runs = leaves_[list.leaves[leaf]].data();
  const std::uint32_t count = list.count[leaf];
  list.begin[leaf] = runs[0].begin;
  list.end[leaf] = runs[count - 1].end;
  Size widest = 0;
  for (std::uint32_t k = 1; k < count; ++k) widest = std::max(widest, runs[k].begin - runs[k - 1].end);
  list.widest[leaf] = widest;
}

void RunLists::insert_large(Large& list, Run run) {
  // The first leaf with a run that may touch the new one, or the last.
  auto k = static_cast<std::size_t>(std::lower_bound(list.end.begin(), list.end.end(), run.begin) -
                                    list.end.begin());
  k = std::min(k, list.end.size() - 1);
  std::size_t last = k;
  while (last + 1 < list.begin.size() && list.begin[last + 1] <= run.end) ++last;
  if (last != k) {
    // It reaches into later leaves: what of them it touches becomes part of it.
    Leaf& right = leaves_[list.leaves[last]];
    Run* const end = right.data() + list.count[last];
    Run* const high =
        std::partition_point(right.data(), end, [&](const Run& other) { return other.begin <= run.end; });
    run.end = std::max(run.end, (high - 1)->end);
    std::copy(high, end, right.data());
    list.count[last] = static_cast<std::uint32_t>(end - high);
    if (list.count[last] != 0) {
      describe(list, last);
      --last;
    }
    drop_leaves(list, k + 1, last + 1);
  }
  if (list.count[k] == kRoom) {
    const Leaf full = leaves_[list.leaves[k]];
    list.count[k] = kRoom / 2;
    describe(list, k);
    add_leaf(list, k + 1, full.data() + kRoom / 2, kRoom / 2);
    return insert_large(list, run);  // into one of the halves, or both
  }
  list.count[k] = insert_sorted(leaves_[list.leaves[k]].data(), list.count[k], run);
  describe(list, k);
}

RunLists::Cursor RunLists::read(const List& list) const {
  Cursor cursor;
  cursor.lists_ = this;
  if (list.capacity == kLarge) {
    cursor.large_ = &large_[list.first];
    cursor.enter(0);
  } else {
    cursor.at_ = runs_.data() + list.first;
    cursor.end_ = cursor.at_ + list.count;
  }
  return cursor;
}

bool RunLists::Cursor::enter(std::uint32_t leaf) {
  leaf_ = leaf;
  if (leaf == large_->leaves.size()) return at_ = end_ = nullptr, false;
  at_ = lists_->leaves_[large_->leaves[leaf]].data();
  end_ = at_ + large_->count[leaf];
  return true;
}

void RunLists::Cursor::seek(Offset position) {
  if (at_ == end_ || at_->end > position) return;
  if (large_ && large_->end[leaf_] <= position) {
    const auto leaf = std::upper_bound(large_->end.begin() + leaf_, large_->end.end(), position);
    if (!enter(static_cast<std::uint32_t>(leaf - large_->end.begin()))) return;
    if (at_->end > position) return;
  }
  if (++at_ != end_ && at_->end <= position) {
    at_ = std::partition_point(at_, end_, [&](const Run& run) { return run.end <= position; });
  }
}

Offset RunLists::Cursor::pass(Size size) {
  Offset position = (at_++)->end;
  for (;;) {
    for (; at_ != end_; ++at_) {
      if (at_->begin - position >= size) return position;
      position = at_->end;
    }
    if (!large_) return position;
    // On to the first leaf with a wide gap before or in it.
    std::uint32_t leaf = leaf_ + 1;
    for (; leaf < large_->leaves.size(); ++leaf) {
      if (large_->begin[leaf] - position >= size || large_->widest[leaf] >= size) break;
      position = large_->end[leaf];
    }
    if (!enter(leaf)) return position;
  }
}

}  // namespace memoir
