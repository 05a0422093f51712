// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/remember/slab/address_space.h"

namespace memoir {

namespace {

struct Nobody final : AddressOwner {
  void free_from_elsewhere(void*) noexcept override {}
};

// Takes every window that is free, each by itself, in ascending order.
std::vector<std::byte*> take_all(AddressSpace& space, AddressOwner& owner) {
  std::vector<std::byte*> windows;
  while (std::byte* const window = space.reserve(AddressSpace::kWindow, &owner)) windows.push_back(window);
  std::sort(windows.begin(), windows.end());
  return windows;
}

}  // namespace

TEST_CASE("a reservation takes whole windows in a row, and what is too large is refused") {
  AddressSpace& space = AddressSpace::instance();
  Nobody owner;
  std::byte* const base = space.reserve(AddressSpace::kWindow + 1, &owner);
  REQUIRE(base != nullptr);
  CHECK(space.size_at(base) == AddressSpace::kWindow + 1);
  CHECK(space.owner_of(base) == &owner);
  CHECK(space.owner_of(base + AddressSpace::kWindow) == &owner);
  space.release(base);
  CHECK(space.owner_of(base) == nullptr);
  CHECK(space.owner_of(base + AddressSpace::kWindow) == nullptr);
  CHECK(space.reserve(0, &owner) == nullptr);
  CHECK(space.reserve(~Size{0}, &owner) == nullptr);
}

TEST_CASE("free windows at the end and at the start are not a row") {
  AddressSpace& space = AddressSpace::instance();
  Nobody owner, wide;
  const std::vector<std::byte*> windows = take_all(space, owner);
  const size_t count = windows.size();
  REQUIRE(count > 16);
  // All of the space is ours: no other test leaves anything behind.
  REQUIRE(windows.back() == windows.front() + (count - 1) * AddressSpace::kWindow);
  // The search begins behind the last reservation, which is this one.
  space.release(windows[count - 7]);
  REQUIRE(space.reserve(AddressSpace::kWindow, &owner) == windows[count - 7]);
  for (const size_t i : {count - 2, count - 1, size_t{0}, size_t{1}}) space.release(windows[i]);

  CHECK(space.reserve(4 * AddressSpace::kWindow, &wide) == nullptr);  // two and two
  for (size_t i = 0; i < count; ++i) REQUIRE(space.owner_of(windows[i]) != &wide);

  for (const size_t i : {size_t{2}, size_t{3}}) space.release(windows[i]);
  CHECK(space.reserve(4 * AddressSpace::kWindow, &wide) == windows[0]);
  for (size_t i = 0; i < count; ++i) REQUIRE((space.owner_of(windows[i]) == &wide) == (i < 4));

  space.release(windows[0]);
  for (size_t i = 4; i < count - 2; ++i) space.release(windows[i]);
  for (std::byte* const window : windows) REQUIRE(space.owner_of(window) == nullptr);
}

}  // namespace memoir
