// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "support/sealed_arena.h"

namespace memoir {

TEST_CASE("a simulated arena counts granules of any size, and runs out as a machine does") {
  SimArena arena(10 * kMiB, {.granule = 2 * kMiB, .limit = 4 * kMiB});
  REQUIRE(arena.ok());
  CHECK(arena.capacity() == 10 * kMiB);
  CHECK(arena.commit({3 * kMiB, 1}));
  CHECK(arena.committed() == 2 * kMiB);
  CHECK_FALSE(arena.commit({2 * kMiB, 5 * kMiB}));  // two more granules would be six MiB
  CHECK(arena.committed() == 2 * kMiB);
  CHECK(arena.commit({2 * kMiB, 4 * kMiB}));  // one of the two is there
  CHECK(arena.committed() == 4 * kMiB);
  arena.decommit({2 * kMiB, 3 * kMiB});
  CHECK(arena.committed() == 2 * kMiB);
  CHECK(arena.peak_committed() == 4 * kMiB);
  CHECK_FALSE(arena.commit({0, 0}));
  CHECK_FALSE(arena.commit({9 * kMiB, 2 * kMiB}));
  CHECK_FALSE(arena.commit({~Offset{0}, 2}));
}

TEST_CASE("a simulated arena of an impossible kind is refused") {
  CHECK_FALSE(SimArena(kMiB, {.granule = 3}).ok());
  CHECK_FALSE(SimArena(kMiB, {.granule = 0}).ok());
  CHECK_FALSE(SimArena(~Size{0}).ok());
  CHECK_FALSE(SimArena(0).ok());
  CHECK_FALSE(SimArena(0).commit({0, 1}));
}

TEST_CASE("a sealed arena counts as the others do, and ends who touches it") {
  SealedArena arena(kMiB + 1);
  REQUIRE(arena.ok());
  CHECK(arena.capacity() == kMiB + arena.granule());
  CHECK(arena.commit({100, 1}));
  CHECK(arena.committed() == arena.granule());
  CHECK_FALSE(arena.commit({kMiB, 2 * arena.granule()}));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // not doctest's
    [[maybe_unused]] const auto byte = *reinterpret_cast<volatile char*>(arena.base() + 100);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  CHECK(status != 0);
#else
  CHECK(WIFSIGNALED(status));
#endif
  arena.decommit({0, kMiB});
  CHECK(arena.committed() == 0);
  CHECK_FALSE(SealedArena(Size{1} << 60).ok());
}

}  // namespace memoir
