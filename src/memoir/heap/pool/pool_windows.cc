// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_windows.h"

#include <algorithm>

namespace memoir {

Size PoolWindows::need_of(const PoolRow::Block& block, Range range) const noexcept {
  if (block.state != PoolRow::State::kHole) return 0;
  const Size granule = arena_->granule();
  const Offset begin = std::max(block.range.begin, align_down(range.begin, granule));
  const Offset end = std::min(block.range.end(), align_up(range.end(), granule));
  return begin < end ? end - begin : 0;
}

bool PoolWindows::is_ordered(const PoolRow::Block& block, std::uint16_t slot) const noexcept {
  if (block.slot == slot || block.moment == 0) return true;
  return order_ != nullptr &&
         order_->is_ordered(row_->stream_of(block.slot), block.moment, row_->stream_of(slot));
}

/// Those that begin where a block begins and those that end where one ends are all that matter.
PoolWindows::Window PoolWindows::find(const Wish& wish, PoolRow::Zone zone, Window best) const noexcept {
  const PoolRow& row = *row_;
  Offset chain = 0;  // where the row of free blocks and holes began
  Index before = 0;  // its first block
  for (Index index = row.head(); index != 0; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (block.state == PoolRow::State::kLive || block.zone != zone) {
      before = 0;
      continue;
    }
    if (before == 0) {
      before = index;
      chain = block.range.begin;
    }
    if (block.range.begin <= ~Size{0} - wish.alignment) {
      const Offset begin = align_up(block.range.begin, wish.alignment);
      if (begin < block.range.end()) weigh(best, begin, index, wish);
    }
    if (block.range.end() - chain < wish.size) continue;
    const Offset begin = align_down(block.range.end() - wish.size, wish.alignment);
    if (begin < chain) continue;
    Index first = index;
    while (row[first].range.begin > begin) first = row[first].before;
    weigh(best, begin, first, wish);
  }
  return best;
}

void PoolWindows::weigh(Window& best, Offset begin, Index first, const Wish& wish) const noexcept {
  const PoolRow& row = *row_;
  Window window{begin, first, 0, 0};
  if (wish.size > arena_->capacity() - begin) return;
  const Range range{begin, wish.size};
  for (Index index = first;; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (index == 0 || block.state == PoolRow::State::kLive || block.zone != row[first].zone) return;
    window.need += need_of(block, range);
    if (window.need > best.need) return;
    if (!is_ordered(block, wish.slot)) {
      if (!wish.waits || order_ == nullptr) return;
      ++window.waits;
    }
    if (block.range.end() >= range.end()) break;
  }
  if (window.need == best.need &&
      (window.waits > best.waits || (window.waits == best.waits && begin >= best.begin))) {
    return;
  }
  best = window;
}

}  // namespace memoir
