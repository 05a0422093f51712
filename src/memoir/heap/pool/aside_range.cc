// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/pool/aside_range.h"

namespace memoir {

bool AsideRange::set(PoolRow& row, Size size) noexcept {
  if (!row.reserve_records(4)) return false;
  row.forget_recent();
  if (!row.keep_starts()) return false;
  row.end_aside();
  range_ = {};
  held_ = 0;
  if (size == 0) return true;
  PoolRow::Index best = 0;  // the largest hole: the addresses that nobody has used yet
  for (PoolRow::Index index = row.head(); index != 0; index = row[index].after) {
    const PoolRow::Block& block = row[index];
    if (block.state == PoolRow::State::kHole && block.zone == PoolRow::Zone::kCommon &&
        block.range.size > row[best].range.size)
      best = index;
  }
  if (row[best].range.size < size) return false;
  row.set_aside(best, size);
  range_ = {row[best].range.begin, size};
  return true;
}

PoolRow::Index AsideRange::free_at(const PoolRow& row, Range range) const noexcept {
  const PoolRow::Index first = row.block_at(range.begin);
  for (PoolRow::Index index = first;; index = row[index].after) {
    if (index == 0 || row[index].state == PoolRow::State::kLive || row[index].zone != PoolRow::Zone::kAside)
      return 0;
    if (row[index].range.end() >= range.end()) return first;
  }
}

Size AsideRange::needed_with(Size held, Range request) const noexcept {
  return range_.size + held - held_ + (request.overlaps(range_) ? 0 : request.size);
}

}  // namespace memoir
