// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_windows.h"

#include <algorithm>
#include <cstdint>

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

PoolWindows::Window PoolWindows::find(const Wish& wish, PoolRow::Zone zone, Window best) const noexcept {
  const PoolRow& row = *row_;
  const auto look = [&](Index index) {
    look_around(best, index, wish);
    return true;
  };
  const FreeBins& holes = row.holes(zone);
  // One that is large enough by itself first: what needs more than that is not looked at.
  if (const Size room = wish.size + wish.alignment; room >= wish.size && room <= arena_->capacity()) {
    if (const Index hole = holes.find(row.blocks(), room, row.units(room)); hole != 0) look(hole);
  }
  holes.visit_upwards(row.blocks(), 1, kLooks, look);
  for (std::uint16_t slot = 0; slot < row.slots(); ++slot) {
    const FreeBins& bins = row.free_bins(slot, zone);
    if (const Index whole = bins.find(row.blocks(), wish.size, row.units(wish.size)); whole != 0) look(whole);
    if (row.slots() > 1 || wish.alignment > 1) bins.visit_downwards(row.blocks(), 1, kLooksOfStream, look);
  }
  // Nearly all addresses are in use, or cut into many blocks: rather a long look than a refusal.
  return best.first == 0 ? find_anywhere(wish, zone) : best;
}

/// In chains of any length: looks at every block.
PoolWindows::Window PoolWindows::find_anywhere(const Wish& wish, PoolRow::Zone zone) const noexcept {
  const PoolRow& row = *row_;
  Window best;
  for (Index index = row.head(); index != 0; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (block.state == PoolRow::State::kLive || block.zone != zone ||
        block.range.begin > ~Size{0} - wish.alignment) {
      continue;
    }
    const Offset begin = align_up(block.range.begin, wish.alignment);
    if (begin < block.range.end()) weigh(best, begin, index, wish);
  }
  return best;
}

/// Windows near this block that begin where a block begins, and that end where one ends: others are no
/// better.
void PoolWindows::look_around(Window& best, Index index, const Wish& wish) const noexcept {
  const PoolRow& row = *row_;
  const PoolRow::Zone zone = row[index].zone;
  const auto is_room = [&](Index at) {
    return at != 0 && row[at].state != PoolRow::State::kLive && row[at].state != PoolRow::State::kRecent &&
           row[at].zone == zone;
  };
  const Offset near = row[index].range.begin - std::min(row[index].range.begin, wish.size);
  Index before = index;  // the first block of the row of free blocks and holes, as far as it matters
  for (int i = 0; i < kNeighbours && row[before].range.begin > near && is_room(row[before].before); ++i)
    before = row[before].before;
  const Offset chain = row[before].range.begin;
  const Offset far = row[index].range.end();
  Index last = index;
  for (int i = 0; i < kNeighbours && row[last].range.end() - chain < wish.size && is_room(row[last].after);
       ++i)
    last = row[last].after;
  if (row[last].range.end() - chain < wish.size) return;
  Index at = before;
  for (int i = 0; i < 2 * kNeighbours && is_room(at); ++i, at = row[at].after) {
    const PoolRow::Block& block = row[at];
    if (block.range.begin > far) break;
    if (block.range.begin <= ~Size{0} - wish.alignment) {
      const Offset begin = align_up(block.range.begin, wish.alignment);
      if (begin < block.range.end()) weigh(best, begin, at, wish);
    }
    if (block.range.end() - chain < wish.size) continue;
    const Offset begin = align_down(block.range.end() - wish.size, wish.alignment);
    if (begin < chain) continue;
    Index first = at;
    while (row[first].range.begin > begin) first = row[first].before;
    weigh(best, begin, first, wish);
  }
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
