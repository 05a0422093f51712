// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/remember/slab/separate_memory.h"

namespace memoir {

TEST_CASE("each object has pages of its own, found by its address and gone with its free") {
  auto& memory = SeparateMemory::instance();
  auto& space = AddressSpace::instance();
  std::mt19937_64 random(1);
  struct Object {
    char* at;
    Size size;
    char mark;
  };
  std::vector<Object> live;
  for (int step = 0; step < 400; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const Size size = kMiB + random() % (random() % 16 == 0 ? 200 * kMiB : kMiB);
      auto* const at = static_cast<char*>(memory.allocate(size));
      REQUIRE(at != nullptr);
      REQUIRE(reinterpret_cast<std::uintptr_t>(at) % (2 * kMiB) == 0);
      REQUIRE(space.owner_of(at) == &memory);
      REQUIRE(at[0] == 0);
      REQUIRE(at[size - 1] == 0);
      live.push_back({at, size, static_cast<char>(1 + step % 100)});
      at[0] = at[size - 1] = live.back().mark;
    } else {
      const size_t victim = random() % live.size();
      const auto [at, size, mark] = live[victim];
      REQUIRE(at[0] == mark);
      REQUIRE(at[size - 1] == mark);
      memory.free_from_elsewhere(at);
      REQUIRE(space.owner_of(at) == nullptr);
      live.erase(live.begin() + victim);
    }
  }
  for (const Object& object : live) memory.free_from_elsewhere(object.at);
  CHECK(memory.allocate(Size{1} << 46) == nullptr);
  CHECK(memory.allocate(~Size{0}) == nullptr);
}

}  // namespace memoir
