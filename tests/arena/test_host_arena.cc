// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "doctest/doctest.h"
#include "memoir/arena/host_arena.h"

namespace memoir {

TEST_CASE("a host arena commits whole pages, counts them once, and gives them back") {
  HostArena arena(10 * kMiB + 1);
  REQUIRE(arena.ok());
  const Size page = arena.granule();
  CHECK(arena.capacity() == 10 * kMiB + page);
  CHECK(arena.committed() == 0);
  CHECK(arena.commit({page - 1, 2}));
  CHECK(arena.committed() == 2 * page);
  CHECK(arena.commit({0, page}));
  CHECK(arena.committed() == 2 * page);
  std::memset(arena.base(), 0x5a, 2 * page);
  arena.decommit({1, 2 * page - 1});  // only the second page lies wholly inside
  CHECK(arena.committed() == page);
  CHECK(arena.base()[0] == std::byte{0x5a});
  CHECK(arena.commit({page, page}));
  CHECK(arena.base()[page] == std::byte{0});  // contents of what was given back are lost
}

TEST_CASE("a host arena refuses what leaves it") {
  HostArena arena(kMiB);
  REQUIRE(arena.ok());
  CHECK_FALSE(arena.commit({0, kMiB + 1}));
  CHECK_FALSE(arena.commit({~Offset{0}, 2}));
  CHECK_FALSE(arena.commit({5, 0}));
  arena.decommit({kMiB * 2, 5});
  CHECK(arena.committed() == 0);
  CHECK_FALSE(HostArena(Size{1} << 60).ok());
}

TEST_CASE("prefaulted pages are there before they are touched") {
  HostArena arena(4 * kMiB + 12 * kKiB, {.huge_pages = true, .prefault = true});
  REQUIRE(arena.ok());
  REQUIRE(arena.commit({0, arena.capacity()}));
  CHECK(reinterpret_cast<std::uintptr_t>(arena.base()) % (2 * kMiB) == 0);
  for (Size at = 0; at < arena.capacity(); at += 512) CHECK(arena.base()[at] == std::byte{0});
}

}  // namespace memoir
