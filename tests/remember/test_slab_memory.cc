// SPDX-License-Identifier: Apache-2.0
//
// What slabs hold, whatever is kept in them, and that no fork() finds them locked.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "doctest/doctest.h"
#include "memoir/remember/slab/address_space.h"
#include "memoir/remember/slab/slab_set.h"
#include "remember/elsewhere.h"

namespace memoir {

namespace {

using Layout = std::shared_ptr<const PlannedLayout>;

/// `count` buffers of `size` bytes, all live together.
Layout row_of(size_t count, Size size) {
  RecordedPlan plan;
  for (size_t i = 0; i < count; ++i) {
    plan.sequence.push_back({.site = 1 + i, .size = size, .alignment = 64, .offset = i * size});
  }
  plan.arena_size = count * size;
  auto layout = std::make_shared<const PlannedLayout>(plan);
  REQUIRE(layout->ok());
  return layout;
}

Size resident_pages() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long all = 0, resident = 0;
  const int read = std::fscanf(file, "%ld %ld", &all, &resident);
  std::fclose(file);
  REQUIRE(read == 2);
  return static_cast<Size>(resident);
}

}  // namespace

TEST_CASE("a small object that is kept holds one page of its slab, not the slab") {
  const Layout small = row_of(4096, 64 * 16), large = row_of(8, 4 * kMiB);
  SlabSet slabs({});
  Slab* const first = slabs.acquire(large);
  REQUIRE(first != nullptr);
  slabs.give_back(first);
  Slab* const slab = slabs.acquire(small);
  REQUIRE(slab == first);
  std::vector<void*> kept;
  for (SiteId site = 1; site <= 9; ++site) kept.push_back(slab->allocate({1024, 64, site}));
  std::vector<std::uint32_t> told;
  slabs.give_back(slab, &told);
  CHECK(told.size() == 9);
  CHECK(slabs.held_bytes() == 32 * kMiB);
  const Size before = resident_pages();
  slabs.retire_all();
  CHECK(slabs.held_bytes() == 3 * 4096);  // four to a page
  CHECK(resident_pages() + 7000 < before);
  for (const size_t i : {0, 1, 2, 4, 5, 6}) give_memory_back(kept[i]);
  CHECK(slabs.held_bytes() == 3 * 4096);
  give_memory_back(kept[3]);
  CHECK(slabs.held_bytes() == 2 * 4096);
  give_memory_back(kept[8]);
  CHECK(slabs.held_bytes() == 4096);
  give_memory_back(kept[7]);
  CHECK(slabs.held_bytes() == 0);
  CHECK(AddressSpace::instance().owner_of(kept[0]) == nullptr);
}

TEST_CASE("objects that lie across pages hold each page that they touch") {
  const Layout layout = row_of(3, 6 * kKiB), other = row_of(1, 64);
  SlabSet slabs({});
  Slab* const slab = slabs.acquire(layout);
  void* const a = slab->allocate({6 * kKiB, 64, 1});
  void* const b = slab->allocate({6 * kKiB, 64, 2});
  void* const c = slab->allocate({6 * kKiB, 64, 3});
  slabs.give_back(slab);
  slabs.retire_all();
  CHECK(slabs.held_bytes() == 20 * kKiB);
  give_memory_back(b);  // a ends in the first of its two pages
  CHECK(slabs.held_bytes() == 16 * kKiB);
  give_memory_back(a);
  CHECK(slabs.held_bytes() == 8 * kKiB);
  give_memory_back(c);
  CHECK(slabs.held_bytes() == 0);
}

TEST_CASE("a slab grows in place, and no further than the limit") {
  const Layout small = row_of(1, 10 * kMiB), larger = row_of(1, 20 * kMiB), huge = row_of(1, 80 * kMiB);
  SlabSet slabs({.max_bytes = 64 * kMiB});
  Slab* const slab = slabs.acquire(small);
  REQUIRE(slab != nullptr);
  slabs.give_back(slab);
  CHECK(slabs.acquire(larger) == slab);
  CHECK(slabs.held_bytes() == 20 * kMiB);
  slabs.give_back(slab);
  CHECK(slabs.acquire(huge) == nullptr);
  CHECK(slabs.held_bytes() == 20 * kMiB);  // what serves the others stays
  CHECK(slabs.acquire_at_once(small) == slab);
  CHECK(slabs.acquire_at_once(small) == nullptr);
  slabs.give_back(slab);
  CHECK(SlabSet::retire_idle_of_all());
  CHECK(slabs.held_bytes() == 0);
}

TEST_CASE("whatever is kept, the bytes stay below their limit") {
  // Passes over three plans in turn, each of which keeps some objects for a random time: a hundred thousand
  // of them.
  const Layout layouts[] = {row_of(64, 1 * kKiB), row_of(48, 4 * kKiB + 64), row_of(20, 20 * kKiB)};
  constexpr Size kLimit = 2 * kMiB;
  SlabSet slabs({.max_slabs = 3, .max_bytes = kLimit});
  std::mt19937_64 random(1);
  std::vector<void*> kept;
  size_t passes = 0;
  Size most = 0;
  for (int call = 0; call < 100'000; ++call) {
    const Layout& layout = layouts[random() % 3];
    if (Slab* const slab = slabs.acquire(layout)) {
      ++passes;
      std::vector<void*> live;
      for (const PlannedLayout::Entry& entry : layout->entries()) {
        if (random() % 8 != 0) continue;
        if (void* const pointer = slab->allocate({entry.size, 64, entry.site})) live.push_back(pointer);
      }
      for (void* const pointer : live) {
        if (random() % 4 == 0 && kept.size() < 400) {
          kept.push_back(pointer);
        } else {
          slab->free_held(pointer);
        }
      }
      slabs.give_back(slab);
    }
    while (!kept.empty() && random() % 3 != 0) {
      std::swap(kept[random() % kept.size()], kept.back());
      give_memory_back(kept.back());
      kept.pop_back();
    }
    most = std::max(most, slabs.held_bytes());
  }
  CHECK(most <= kLimit);
  CHECK(passes > 50'000);
  for (void* const pointer : kept) give_memory_back(pointer);
  slabs.retire_all();
  CHECK(slabs.held_bytes() == 0);
}

TEST_CASE("a child finds no lock held, and gets slabs of its own") {
  const Layout layout = row_of(16, 4096);
  SlabSet slabs({.max_slabs = 4});
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!stop) {
        Slab* const slab = slabs.acquire(layout);
        if (slab == nullptr) continue;
        void* const pointer = slab->allocate({4096, 64, 1});
        slab->free_held(pointer);
        slabs.give_back(slab);
      }
    });
  }
  int failed = 0;
  for (int round = 0; round < 100; ++round) {
    Slab* const mine = slabs.acquire(layout);
    void* const held = mine == nullptr ? nullptr : mine->allocate({4096, 64, 1});
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // a child that hangs ends by a signal
      bool good = fork_generation() > 0;
      if (mine != nullptr) {  // the pass of this thread goes on
        mine->free_held(held);
        slabs.give_back(mine);
      }
      for (int pass = 0; pass < 8; ++pass) {
        Slab* const slab = slabs.acquire(layout);
        good = good && slab != nullptr;
        if (slab == nullptr) break;
        void* const pointer = slab->allocate({4096, 64, 1});
        good = good && pointer != nullptr;
        if (pointer != nullptr) slab->free_held(pointer);
        slabs.give_back(slab);
      }
      ::_exit(good ? 0 : 1);
    }
    REQUIRE(child > 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    failed += status != 0;
    if (mine != nullptr) {
      mine->free_held(held);
      slabs.give_back(mine);
    }
  }
  stop = true;
  for (auto& thread : others) thread.join();
  CHECK(failed == 0);
}

TEST_CASE("threads that fork at the same time, while others wake the upkeep, do not wait for ever") {
  const Layout layout = row_of(16, 4096);
  const pid_t program = ::fork();  // which an alarm ends if it hangs
  if (program == 0) {
    ::alarm(60);
    SlabSet slabs({.max_slabs = 4});
    std::atomic<bool> stop{false};
    std::atomic<int> failed{0};
    std::vector<std::thread> takers, forkers;
    for (int i = 0; i < 2; ++i) {
      takers.emplace_back([&] {
        while (!stop) {
          Slab* const slab = slabs.acquire(layout);
          if (slab != nullptr) slabs.give_back(slab);
        }
      });
      forkers.emplace_back([&] {
        for (int round = 0; round < 60; ++round) {
          const pid_t child = ::fork();
          if (child == 0) {
            ::alarm(20);
            Slab* const slab = slabs.acquire(layout);
            if (slab != nullptr) slabs.give_back(slab);
            ::_exit(slab == nullptr);
          }
          int status = 0;
          failed += child < 0 || ::waitpid(child, &status, 0) != child || status != 0;
        }
      });
    }
    for (auto& thread : forkers) thread.join();
    stop = true;
    for (auto& thread : takers) thread.join();
    ::_exit(failed != 0);
  }
  int status = 0;
  REQUIRE(::waitpid(program, &status, 0) == program);
  CHECK(status == 0);
}

TEST_CASE("under a limit on address space only a small share is taken, and nothing before the first need") {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{Size{1} << 42, Size{1} << 42};
    ::setrlimit(RLIMIT_AS, &limit);
    bool good = AddressSpace::share_of_limit() == (Size{1} << 38);
    const rlimit small{8 * kGiB, 8 * kGiB};
    ::setrlimit(RLIMIT_AS, &small);
    good = good && AddressSpace::share_of_limit() == 512 * kMiB;
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace memoir
