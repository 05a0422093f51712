// SPDX-License-Identifier: Apache-2.0
//
// What pools share: the index of free blocks by size, the table of live offsets, and blocks in a row.
#include <map>
#include <random>
#include <set>

#include "doctest/doctest.h"
#include "memoir/heap/index/block_row.h"
#include "memoir/heap/index/offset_table.h"
#include "memoir/heap/index/size_index.h"

namespace memoir {

namespace {
SizeKey key_of(const Block& block) { return {block.range.size, block.range.begin}; }
using Index = SizeIndex<Block, &key_of>;
}  // namespace

TEST_CASE("the size index answers as a sorted set does") {
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::mt19937_64 random(seed);
    BlockRow<Block> blocks;
    REQUIRE(blocks.start());
    Index index;
    std::map<SizeKey, std::uint32_t> oracle;
    CHECK(index.empty());
    CHECK(index.last(blocks.data()) == 0);
    const auto any_size = [&] { return 1 + (random() >> random() % 64) % (~Size{0} - 1); };
    for (int step = 0; step < 20'000; ++step) {
      if (oracle.size() < 300 ? random() % 3 != 0 : random() % 3 == 0) {
        REQUIRE(blocks.reserve(1));
        const SizeKey key{random() % 2 == 0 ? any_size() : 1000 + random() % 40, random() % 64};
        if (oracle.contains(key)) continue;
        const auto block = blocks.add({key.tie, key.size});
        index.insert(blocks.data(), block);
        oracle[key] = block;
      } else if (!oracle.empty()) {
        const auto at = std::next(oracle.begin(), random() % oracle.size());
        index.erase(blocks.data(), at->second);
        blocks.drop(at->second);
        oracle.erase(at);
      }
      const SizeKey wanted{random() % 2 == 0 ? any_size() : 990 + random() % 60, random() % 64};
      const auto best = oracle.lower_bound(wanted);
      const auto found = index.lower_bound(blocks.data(), wanted);
      REQUIRE(found == (best == oracle.end() ? 0 : best->second));
      if (found != 0) {
        REQUIRE(index.next(blocks.data(), found) ==
                (std::next(best) == oracle.end() ? 0 : std::next(best)->second));
      }
      REQUIRE(index.empty() == oracle.empty());
      REQUIRE(index.last(blocks.data()) == (oracle.empty() ? 0 : std::prev(oracle.end())->second));
    }
  }
}

TEST_CASE("the table of offsets answers as a map does, through growth and erasure") {
  std::mt19937_64 random(1);
  OffsetTable table;
  std::map<Offset, std::uint32_t> oracle;
  CHECK(table.find(0) == 0);
  CHECK(table.take(0) == 0);
  for (int step = 0; step < 200'000; ++step) {
    const Offset offset = (random() % 4096) * (step % 2 == 0 ? 512 : 1);
    if (oracle.contains(offset)) {
      REQUIRE(table.find(offset) == oracle[offset]);
      if (random() % 2 == 0) continue;
      REQUIRE(table.take(offset) == oracle[offset]);
      oracle.erase(offset);
    } else {
      REQUIRE(table.find(offset) == 0);
      REQUIRE(table.take(offset) == 0);
      REQUIRE(table.reserve_one());
      const auto index = static_cast<std::uint32_t>(1 + random() % 1000);
      table.insert(offset, index);
      oracle[offset] = index;
    }
    REQUIRE(table.size() == oracle.size());
  }
  for (const auto& [offset, index] : oracle) CHECK(table.find(offset) == index);
}

TEST_CASE("blocks are cut and joined in the order of their addresses, and records are used again") {
  BlockRow<Block> blocks;
  REQUIRE(blocks.start());
  const auto first = blocks.add({100, 1000});
  CHECK(blocks.is_whole(first));
  const auto third = blocks.cut(first, 600);
  const auto second = blocks.cut(first, 400);
  CHECK(blocks[first].range == Range{100, 400});
  CHECK(blocks[second].range == Range{500, 200});
  CHECK(blocks[third].range == Range{700, 400});
  CHECK(blocks[first].after == second);
  CHECK(blocks[third].before == second);
  CHECK_FALSE(blocks.is_whole(second));
  CHECK(blocks.join_after(first) == second);
  blocks.drop(second);
  CHECK(blocks[third].before == first);
  blocks.drop(blocks.join_after(first));
  CHECK(blocks[first].range == Range{100, 1000});
  CHECK(blocks.is_whole(first));
  const auto again = blocks.cut(first, 1);
  CHECK((again == second || again == third));
}

}  // namespace memoir
