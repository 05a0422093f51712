// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/pool_windows.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace memoir {

Size PoolWindows::need_of(const PoolRow::Block& block, Range range) const noexcept {
  if (block.state != PoolRow::State::kHole) return 0;
  const Offset begin = std::max(block.range.begin, align_down(range.begin, granule_));
  const Offset end = std::min(block.range.end(), align_up(range.end(), granule_));
  return begin < end ? end - begin : 0;
}

bool PoolWindows::is_ordered(const PoolRow::Block& block, std::uint16_t slot) const noexcept {
  if (block.slot == slot || block.moment == 0) return true;
  return order_ != nullptr &&
         order_->is_ordered(row_->stream_of(block.slot), block.moment, row_->stream_of(slot));
}

PoolWindows::Window PoolWindows::find(const Wish& wish, PoolRow::Zone zone, Window best) noexcept {
  PoolRow& row = *row_;
  for (int round = 0; round < kRounds; ++round) {
    std::array<Index, kLooks> holes;
    const size_t count = row.find_holes(zone, wish.size, holes);
    bool any = count == 0;
    for (size_t i = 0; i < count; ++i) {
      if (!row.fits_still(holes[i], wish.size)) continue;
      any = true;
      look_around(best, holes[i], wish);
    }
    if (any) break;
  }
  for (std::uint16_t slot = 0; slot < row.slots(); ++slot) {
    const FreeBins& bins = row.free_bins(slot, zone);
    if (const Index whole = bins.find(row.blocks(), wish.size, row.units(wish.size)); whole != 0)
      look_around(best, whole, wish);
    if (row.slots() == 1 && wish.alignment <= 1) continue;
    bins.visit_downwards(row.blocks(), 1, kLooksOfStream, [&](Index index) {
      look_around(best, index, wish);
      return true;
    });
  }
  // Nearly all addresses are in use, or cut into many blocks: rather a long look than a refusal.
  return best.first == 0 ? find_anywhere(wish, zone) : best;
}

PoolWindows::Window PoolWindows::find_fit(const Wish& wish, Index block) noexcept {
  PoolRow& row = *row_;
  Window best;
  weigh(best, row[block].range.begin, block, row.room_of(block), wish);
  std::array<Index, kFewLooks> holes;
  const size_t count = row.find_holes(row[block].zone, wish.size, holes);
  for (size_t i = 0; i < count; ++i) {
    if (row.fits_still(holes[i], wish.size)) look_around(best, holes[i], wish);
  }
  return best;
}

/// In rooms of any length: looks at every block.
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
    if (begin < block.range.end()) weigh(best, begin, index, row.room_of(index), wish);
  }
  return best;
}

/// Windows of this block's room that begin where a block begins, and that end where one ends.
void PoolWindows::look_around(Window& best, Index index, const Wish& wish) const noexcept {
  const PoolRow& row = *row_;
  const PoolRow::Room room = row.room_of(index);
  if (room.range.size < wish.size) return;
  const Offset last = room.range.end() - wish.size;
  for (Index at = room.first; at != 0 && row[at].range.begin < room.range.end(); at = row[at].after) {
    const PoolRow::Block& block = row[at];
    if (block.range.begin <= last) {
      const Offset begin = align_up(block.range.begin, wish.alignment);
      if (begin <= last && begin < block.range.end()) weigh(best, begin, at, room, wish);
    }
    if (block.range.end() - room.range.begin < wish.size) continue;
    const Offset begin = align_down(block.range.end() - wish.size, wish.alignment);
    if (begin < room.range.begin) continue;
    Index first = at;
    while (row[first].range.begin > begin) first = row[first].before;
    weigh(best, begin, first, room, wish);
  }
}

void PoolWindows::weigh(Window& best, Offset begin, Index first, const PoolRow::Room& room,
                        const Wish& wish) const noexcept {
  const PoolRow& row = *row_;
  if (wish.size > capacity_ - begin) return;
  const Range range{begin, wish.size};
  const Offset low = align_down(begin, granule_), high = align_up(range.end(), granule_);
  const bool shares_low = low<room.range.begin, shares_high = high> room.range.end();
  Size pinned = granules(high - low);
  pinned -= std::min<Size>(pinned, Size{shares_low} + Size{shares_high});
  const Size left = std::min((room.range.size - std::min(room.range.size, wish.size)), kMostLeft * granule_);
  Window window{begin, first, 0, 0, kPin * pinned + granules(kLeft * left)};
  if (window.cost > best.cost) return;
  for (Index index = first;; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (index == 0 || block.state == PoolRow::State::kLive || block.zone != row[first].zone) return;
    window.need += need_of(block, range);
    if (!is_ordered(block, wish.slot)) {
      if (!wish.waits || order_ == nullptr) return;
      ++window.waits;
    }
    if (block.range.end() >= range.end()) break;
  }
  window.cost += kNeed * granules(window.need) + kWait * window.waits;
  if (window.cost > best.cost || (window.cost == best.cost && begin >= best.begin)) return;
  best = window;
}

}  // namespace memoir
