// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/base/metadata.h"
#include "memoir/base/metadata_queue.h"
#include "memoir/base/site.h"
#include "memoir/base/units.h"

namespace memoir {

TEST_CASE("ranges and lifetimes are half-open") {
  CHECK(Range{0, 4}.overlaps({3, 1}));
  CHECK_FALSE(Range{0, 4}.overlaps({4, 1}));
  CHECK(Lifetime{0, 4}.overlaps({3, 9}));
  CHECK_FALSE(Lifetime{0, 4}.overlaps({4, 9}));
}

TEST_CASE("align_up") {
  CHECK(align_up(0, 64) == 0);
  CHECK(align_up(1, 64) == 64);
  CHECK(align_up(64, 64) == 64);
  CHECK(align_down(127, 64) == 64);
}

TEST_CASE("a site is its chain of names, whatever the run") {
  const SiteId convolution = child_site(kNoSite, "aten::convolution");
  CHECK(convolution == child_site(kNoSite, "aten::convolution"));
  CHECK(child_site(convolution, "aten::empty") != child_site(kNoSite, "aten::empty"));
  // A plan written by one version of memoir must match in the next: these ids are part of the file formats.
  CHECK(hash_name("aten::empty") == 0x7f1d8ee447b611d9ull);
}

TEST_CASE("a metadata array grows and keeps its values") {
  MetadataArray<int> values;
  for (int i = 0; i < 100000; ++i) REQUIRE(values.push_back(i));
  for (int i = 0; i < 100000; ++i) REQUIRE(values[i] == i);
  CHECK_FALSE(values.reserve(~size_t{0} / 8));
  CHECK(values.size() == 100000);
  MetadataArray<int> moved = std::move(values);
  CHECK(moved.back() == 99999);
}

TEST_CASE("a queue in metadata memory gives back in order, whatever its length") {
  MetadataQueue<std::uint64_t> queue;
  std::uint64_t pushed = 0, popped = 0;
  for (const std::uint64_t length : {1u, 3000u, 2u, 700u, 0u}) {
    for (int round = 0; round < 5000; ++round) {
      while (pushed - popped <= length) REQUIRE(queue.push_back(pushed++));
      REQUIRE(queue.size() == pushed - popped);
      while (pushed - popped > length) {
        REQUIRE(queue.front() == popped++);
        queue.pop_front();
      }
    }
  }
  CHECK(queue.empty());
}

}  // namespace memoir
