// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "memoir/arena/sim_arena.h"
#include "support/arena_segments.h"

namespace memoir {

TEST_CASE("segments begin at granules, do not overlap, and cost their granules while they are held") {
  SimArena arena(64 * kMiB, {.granule = 2 * kMiB, .limit = 10 * kMiB});
  ArenaSegments segments(arena);
  REQUIRE(segments.ok());
  const Offset first = segments.take(3 * kMiB);
  const Offset second = segments.take(2 * kMiB);
  CHECK(first % (2 * kMiB) == 0);
  CHECK(second % (2 * kMiB) == 0);
  CHECK_FALSE(Range{first, 4 * kMiB}.overlaps({second, 2 * kMiB}));
  CHECK(segments.held() == 6 * kMiB);
  CHECK(arena.committed() == 6 * kMiB);

  CHECK(segments.take(5 * kMiB) == kNoOffset);  // 6 of them, over the limit
  CHECK(segments.held() == 6 * kMiB);
  CHECK(arena.committed() == 6 * kMiB);
  segments.give_back({first, 3 * kMiB});
  CHECK(arena.committed() == 2 * kMiB);
  CHECK(segments.take(5 * kMiB) != kNoOffset);
  CHECK(arena.committed() == 8 * kMiB);
}

TEST_CASE("sizes that cannot be are refused") {
  SimArena arena(4 * kMiB, {.granule = 2 * kMiB});
  ArenaSegments segments(arena);
  CHECK(segments.take(0) == kNoOffset);
  CHECK(segments.take(~Size{0}) == kNoOffset);
  CHECK(segments.take(4 * kMiB + 1) == kNoOffset);
  CHECK(segments.take(4 * kMiB) == 0);
  CHECK(segments.take(1) == kNoOffset);
}

}  // namespace memoir
