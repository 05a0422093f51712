// SPDX-License-Identifier: Apache-2.0
#include "support/sealed_arena.h"

#include "memoir/arena/host_arena.h"

namespace memoir {

namespace {
constexpr Size kGranule = 4 * kKiB;
}

SealedArena::SealedArena(Size capacity) noexcept {
  if (capacity == 0 || capacity > (Size{1} << 47)) return;
  capacity = align_up(capacity, kGranule);
  if (granules_.reset(capacity, kGranule)) base_ = reserve_address_space(capacity);
}

SealedArena::~SealedArena() { release_address_space(base_, capacity()); }

bool SealedArena::commit(Range range) noexcept {
  const Range covered = granules_.cover(range);
  granules_.insert(covered);
  return covered.size != 0;
}

void SealedArena::decommit(Range range) noexcept { granules_.erase(granules_.inside(range)); }

}  // namespace memoir
