// SPDX-License-Identifier: Apache-2.0
#include "support/arena_segments.h"

#include "memoir/base/check.h"

namespace memoir {

Offset ArenaSegments::take(Size size) noexcept {
  if (size == 0 || size > arena_->capacity()) return kNoOffset;
  return spans_.allocate({align_up(size, arena_->granule()), arena_->granule()});
}

void ArenaSegments::give_back(Range segment) noexcept {
  MEMOIR_CHECK(spans_.free(segment.begin), "a segment is given back once, and whole");
  spans_.trim();
}

}  // namespace memoir
