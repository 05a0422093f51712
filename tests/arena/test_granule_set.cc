// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/granule_set.h"

#include <algorithm>
#include <random>
#include <vector>

#include "doctest/doctest.h"

namespace memoir {

TEST_CASE("ranges of any length, against a plain list of granules") {
  constexpr Size kGranule = 4096, kChunk = Size{64} * 4096, kCount = 3 * kChunk + 100;
  std::mt19937_64 random(5);
  std::vector<char> expected(kCount, 0);
  GranuleSet set;
  REQUIRE(set.reset(kCount * kGranule, kGranule));
  const auto point = [&]() -> Size {
    const Size at = random() % 4 * kChunk;  // near the ends of chunks, and anywhere
    switch (random() % 3) {
      case 0:
        return std::min(at + random() % 70, kCount);
      case 1:
        return at - std::min<Size>(at, random() % 70);
      default:
        return random() % (kCount + 1);
    }
  };
  for (int i = 0; i < 300; ++i) {
    const auto [begin, end] = std::minmax({point(), point()});
    const Range range{begin * kGranule, (end - begin) * kGranule};
    const auto from = expected.begin() + static_cast<std::ptrdiff_t>(begin),
               to = expected.begin() + static_cast<std::ptrdiff_t>(end);
    const auto held = static_cast<Size>(std::count(from, to, 1));
    CHECK(set.committed_in(range) == held * kGranule);
    CHECK(set.contains(range) == (held == end - begin));
    const bool insert = random() % 2 == 0;
    std::fill(from, to, insert);
    if (insert) set.insert(range);
    else set.erase(range);
    CHECK(set.committed() == static_cast<Size>(std::count(expected.begin(), expected.end(), 1)) * kGranule);
  }
}

TEST_CASE("16 TiB of pages take a byte for each GiB") {
  GranuleSet set;
  REQUIRE(set.reset(Size{1} << 44, 4 * kKiB));
  for (int i = 0; i < 100; ++i) {
    set.insert({0, Size{1} << 44});
    CHECK(set.committed() == Size{1} << 44);
    set.erase({4 * kKiB, (Size{1} << 44) - 8 * kKiB});
    CHECK(set.committed() == 8 * kKiB);
  }
}

}  // namespace memoir
