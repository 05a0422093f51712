// SPDX-License-Identifier: Apache-2.0
//
// The rules of the LLAMA paper's heap, each by an example, and random runs over all of them.
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/sim_arena.h"
#include "memoir/heap/peers/llama/llama_heap.h"

namespace memoir {

namespace {

constexpr Size kPage = LlamaPages::kPage, kBlock = LlamaPages::kBlock;
constexpr Tick kMs = 1'000'000;

struct Setting {
  SimArena arena{256 * kMiB, {.granule = kPage}};
  LlamaPages pages{arena, {}};

  Offset take(size_t lifetime, size_t blocks = 1) {
    return pages.allocate(blocks * kBlock, kBlock, lifetime);
  }
  void fill_page(size_t lifetime, std::vector<Offset>& blocks) {
    for (size_t i = 0; i < LlamaPages::kBlocks; ++i) blocks.push_back(take(lifetime));
  }
  void free(Offset block) { pages.free({block, kBlock}); }
};

Request of(Size size, std::uint8_t lifetime, std::uint32_t thread = 0) {
  return {.size = size, .thread = thread, .lifetime = lifetime};
}

}  // namespace

TEST_CASE("classes are a factor of ten apart; the last is for what is never freed") {
  const WallClasses classes;
  CHECK(classes.of(0) == 0);
  CHECK(classes.of(10 * kMs - 1) == 0);
  CHECK(classes.of(10 * kMs) == 1);
  CHECK(classes.of(999 * 1000 * kMs) == 5);
  CHECK(classes.of(1000 * 1000 * kMs) == 6);
  CHECK(classes.of(Tick{1} << 62) == 6);
  CHECK(classes.of(WallClasses::kEndless) == 7);
  CHECK(WallClasses(1).of(1) == 1);
}

TEST_CASE("an open page takes one class alone, is filled once, and gives its memory back when it is empty") {
  Setting all;
  std::vector<Offset> blocks;
  blocks.push_back(all.take(2));
  const Offset other = all.take(3);
  CHECK(blocks[0] / kPage != other / kPage);
  CHECK(all.pages.page(0).open);
  CHECK(all.pages.page(0).lifetime == 2);
  while (blocks.size() < LlamaPages::kBlocks) {
    blocks.push_back(all.take(2));
    if (blocks.size() == 100) all.free(blocks[50]);  // not handed out again while the page is open
  }
  CHECK_FALSE(all.pages.page(0).open);
  for (size_t i = 0; i < blocks.size(); ++i) CHECK(blocks[i] == i * kBlock);
  CHECK(all.take(2) / kPage == 2);  // the gap is for shorter classes
  CHECK(all.take(1) == blocks[50]);
  CHECK_FALSE(all.pages.page(0).residual.test(50));
  CHECK(all.pages.consistent());
  CHECK(all.arena.committed() == 3 * kPage);
  for (const Offset block : blocks) all.free(block);
  CHECK(all.arena.committed() == 2 * kPage);
  CHECK(all.pages.consistent());
}

TEST_CASE("holes are taken in the longest class first") {
  Setting all;
  std::vector<Offset> first, second;
  all.fill_page(4, first);
  all.fill_page(6, second);
  all.free(first[3]);
  all.free(second[9]);
  all.free(second[10]);
  CHECK(all.take(2) == second[9]);
  CHECK(all.take(5) == second[10]);
  CHECK(all.take(5) / kPage == 2);  // not into a page of a shorter class
  CHECK(all.take(3) == first[3]);
  CHECK(all.pages.figures().holes == 3 * kBlock);
}

TEST_CASE("without residual blocks a page drops by one class, until it is empty") {
  Setting all;
  std::vector<Offset> blocks;
  all.fill_page(3, blocks);
  for (const Offset block : blocks) {
    if (block != blocks[7]) all.free(block);
  }
  const Offset shorter = all.take(1);
  all.free(blocks[7]);  // the last residual one
  const LlamaPages::PageView page = all.pages.page(0);
  CHECK(page.lifetime == 2);
  CHECK(page.residual == page.live);
  CHECK(page.deadline == 2 * 1000 * kMs);
  CHECK(all.pages.figures().dropped == 1);
  all.free(shorter);
  CHECK_FALSE(all.pages.page(0).used);
  CHECK(all.arena.committed() == 0);
  CHECK(all.pages.consistent());
}

TEST_CASE(
    "a page that outlives its deadline rises; residual blocks stay so, and others are left as they are") {
  Setting all;
  std::vector<Offset> blocks;
  all.pages.set_time(5 * kMs);
  all.fill_page(1, blocks);
  all.free(blocks[0]);
  const Offset guest = all.take(0);
  CHECK(all.pages.page(0).deadline == 205 * kMs);  // twice the class's 100 ms
  all.pages.set_time(204 * kMs);
  CHECK(all.pages.expire_one() == LlamaPages::kNoPage);
  all.pages.set_time(205 * kMs);
  CHECK(all.pages.expire_one() == 0);
  CHECK(all.pages.expire_one() == LlamaPages::kNoPage);
  CHECK(all.pages.page(0).lifetime == 2);
  CHECK(all.pages.page(0).deadline == 2205 * kMs);
  CHECK_FALSE(all.pages.page(0).residual.test(guest / kBlock));
  CHECK(all.pages.page(0).residual.test(1));
  all.free(blocks[1]);
  CHECK(all.take(1) == blocks[1]);  // one class further, its gaps are for what was its own class
  all.pages.set_time(Tick{1} << 62);
  size_t rises = 0;
  while (all.pages.expire_one() != LlamaPages::kNoPage) ++rises;
  CHECK(rises >= 1);
  CHECK(all.pages.consistent());
}

TEST_CASE("what is larger than a page lies in pages of its own, whose rest is for shorter classes") {
  Setting all;
  const Offset large = all.pages.allocate(2 * kPage + 3 * kBlock, kBlock, 5);
  CHECK(large == 0);
  CHECK(all.take(4) == 2 * kPage + 3 * kBlock);
  CHECK(all.take(5) / kPage == 3);
  CHECK(all.pages.allocate(kBlock, 4 * kPage, 5) == 4 * kPage);  // at a page's multiple
  CHECK(all.pages.consistent());
}

TEST_CASE("small objects: one behind the other, a thread's apart from others', occupied lines are skipped") {
  SimArena arena(64 * kMiB, {.granule = kPage});
  LlamaHeap heap(arena);
  const Offset first = heap.allocate(of(40, 1)), second = heap.allocate(of(100, 1));
  CHECK(second == first + 48);
  const Offset other = heap.allocate(of(40, 1, 7));
  CHECK(other / LineSpans::kSpan != first / LineSpans::kSpan);
  CHECK(heap.allocate(of(40, 2)) / kPage != first / kPage);
  std::vector<Offset> rest;
  while (rest.empty() || rest.back() / LineSpans::kSpan == first / LineSpans::kSpan)
    rest.push_back(heap.allocate(of(128, 1)));
  // The span is closed now. Its free lines wait for its page's deadline.
  for (size_t i = 0; i + 1 < rest.size(); i += 2) CHECK(heap.free(rest[i]));
  CHECK(heap.allocate(of(128, 1)) == rest.back() + 128);
  CHECK(heap.spans().objects() == 6 + rest.size() / 2);
}

TEST_CASE("a closed span without objects goes back at once, and with the last its page") {
  SimArena arena(64 * kMiB, {.granule = kPage});
  LlamaHeap heap(arena);
  std::vector<Offset> objects;
  for (int i = 0; i < 400; ++i) objects.push_back(heap.allocate(of(128, 1)));
  CHECK(heap.spans().spans() == 4);
  for (int i = 0; i < 128; ++i) heap.free(objects[i]);
  CHECK(heap.spans().spans() == 3);
  for (int i = 128; i < 400; ++i) heap.free(objects[i]);
  CHECK(heap.spans().spans() == 1);  // it is open
  heap.trim();
  CHECK(heap.spans().spans() == 0);
  CHECK(arena.committed() == 0);
}

TEST_CASE("after its page's deadline a span with free lines serves the page's next class") {
  SimArena arena(64 * kMiB, {.granule = kPage});
  LlamaHeap heap(arena);
  heap.tick(0);
  std::vector<Offset> objects;
  for (Size i = 0; i < kPage / 128 + 1; ++i) objects.push_back(heap.allocate(of(128, 1)));
  for (int i = 0; i < 60; ++i) heap.free(objects[i]);
  heap.tick(199 * kMs);
  CHECK(heap.allocate(of(128, 2)) >= kPage);
  heap.tick(200 * kMs);
  for (int i = 0; i < 127; ++i) heap.allocate(of(128, 2));  // the rest of its open span
  CHECK(heap.allocate(of(128, 2)) == objects[0]);
  CHECK(heap.pages().consistent());
}

TEST_CASE(
    "an object larger than a line that does not fit goes to a span of its thread's that was wholly free") {
  SimArena arena(64 * kMiB, {.granule = kPage});
  LlamaHeap heap(arena);
  const Offset small = heap.allocate(of(64, 3));
  CHECK(small % 16 == 0);
  const Offset medium = heap.allocate(of(1000, 3));
  const Offset next = heap.allocate(of(64, 3));
  CHECK(next / LineSpans::kSpan == small / LineSpans::kSpan);
  CHECK(heap.allocate(of(7000, 3)) % 16 == 0);
  CHECK(medium != next);
  const Offset aligned = heap.allocate({.size = 100, .alignment = 4096, .lifetime = 3});
  CHECK(aligned % 4096 == 0);
}

TEST_CASE("random classes, sizes, threads and times: nothing contradicts itself, and nothing is left over") {
  Size risen = 0, dropped = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    SimArena arena(512 * kMiB, {.granule = kPage, .limit = seed % 2 == 0 ? ~Size{0} : 48 * kMiB});
    LlamaHeap heap(arena);
    std::vector<Offset> live;
    Tick now = 0;
    for (int i = 0; i < 40'000; ++i) {
      now += random() % (2 * kMs);
      heap.tick(now);
      if (random() % 1000 < (i / 10'000 % 2 == 0 ? 600u : 400u)) {
        const Size size = 1 + random() % (Size{16} << random() % 14);
        const auto lifetime = static_cast<std::uint8_t>(random() % 8);
        const Offset offset = heap.allocate(of(size, lifetime, static_cast<std::uint32_t>(random() % 3)));
        if (offset != kNoOffset) live.push_back(offset);
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        REQUIRE(heap.free(live.back()));
        live.pop_back();
      }
      if (i % 500 == 0) REQUIRE(heap.pages().consistent());
    }
    risen += heap.pages().figures().risen;
    dropped += heap.pages().figures().dropped;
    CHECK(arena.committed() == heap.pages().figures().pages * kPage);
    for (const Offset offset : live) CHECK(heap.free(offset));
    heap.trim();
    CHECK(arena.committed() == 0);
    CHECK(heap.live() == 0);
    CHECK(heap.spans().spans() == 0);
  }
  CHECK(risen > 0);
  CHECK(dropped > 0);
}

}  // namespace memoir
