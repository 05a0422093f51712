// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/sim_arena.h"

#include <algorithm>

namespace memoir {

SimArena::SimArena(Size capacity, SimArenaOptions options) noexcept : limit_(options.limit) {
  if (!is_power_of_two(options.granule) || capacity > ~Size{0} - options.granule) return;
  if (!granules_.reset(align_up(capacity, options.granule), options.granule)) granules_ = {};
}

bool SimArena::commit(Range range) noexcept {
  const Range covered = granules_.cover(range);
  if (covered.size == 0) return false;
  const Size before = granules_.committed();
  if (covered.size > limit_ - std::min(before, limit_)) {  // it may be there in part: count what would be new
    Size fresh = 0;
    for (Offset at = covered.begin; at < covered.end(); at += granule()) {
      if (!granules_.contains({at, granule()})) fresh += granule();
    }
    if (before + fresh > limit_) {
      ++refusals_;
      return false;
    }
  }
  granules_.insert(covered);
  commits_ += granules_.committed() != before;
  peak_committed_ = std::max(peak_committed_, granules_.committed());
  return true;
}

void SimArena::decommit(Range range) noexcept {
  const Size before = granules_.committed();
  granules_.erase(granules_.inside(range));
  decommits_ += granules_.committed() != before;
}

}  // namespace memoir
