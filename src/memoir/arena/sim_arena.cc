// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/sim_arena.h"

namespace memoir {

SimArena::SimArena(Size capacity, SimArenaOptions options) noexcept
    : own_{.limit = options.limit}, shared_(options.memory) {
  if (!is_power_of_two(options.granule) || capacity > ~Size{0} - options.granule) return;
  if (!granules_.reset(align_up(capacity, options.granule), options.granule)) granules_ = {};
}

bool SimArena::commit(Range range) noexcept {
  const Range covered = granules_.cover(range);
  if (covered.size == 0) return false;
  const Size before = granules_.committed();
  // It may be there in part: only what is new takes memory.
  if (covered.size > memory().left() && covered.size - granules_.committed_in(covered) > memory().left()) {
    ++refusals_;
    return false;
  }
  granules_.insert(covered);
  memory().taken += granules_.committed() - before;
  commits_ += granules_.committed() != before;
  peak_committed_ = std::max(peak_committed_, granules_.committed());
  return true;
}

void SimArena::decommit(Range range) noexcept {
  const Size before = granules_.committed();
  granules_.erase(granules_.inside(range));
  memory().taken -= before - granules_.committed();
  decommits_ += granules_.committed() != before;
}

}  // namespace memoir
