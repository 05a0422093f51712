// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/metadata.h"

#include <cstring>
#include <vector>

#include "doctest/doctest.h"

namespace memoir {

TEST_CASE("pages are zero, also those that somebody gave back; nobody gets what another one has") {
  for (const Size size : {Size{1}, Size{4096}, Size{10'000}, Size{16'384}, Size{16'385}, Size{1'000'000}}) {
    for (int round = 0; round < 3; ++round) {
      std::vector<unsigned char*> held;
      for (unsigned char i = 1; i <= 20; ++i) {
        auto* const pages = static_cast<unsigned char*>(map_metadata(size));
        REQUIRE(pages != nullptr);
        CHECK(pages[0] == 0);
        CHECK(std::memcmp(pages, pages + 1, size - 1) == 0);  // all as the first
        std::memset(pages, i, size);
        held.push_back(pages);
      }
      for (unsigned char i = 1; i <= 20; ++i) {
        unsigned char* const pages = held[i - 1u];
        CHECK(pages[0] == i);
        CHECK(pages[size - 1] == i);
        unmap_metadata(pages, size);
      }
    }
  }
}

TEST_CASE("an array grows from pages that somebody gave back") {
  for (int round = 0; round < 3; ++round) {
    MetadataArray<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < 10'000; ++i) REQUIRE(numbers.push_back(i));
    for (std::uint64_t i = 0; i < 10'000; ++i) REQUIRE(numbers[i] == i);
  }
}

}  // namespace memoir
