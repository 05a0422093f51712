// SPDX-License-Identifier: Apache-2.0
//
// The malloc as functions, not as the process's own: so that sanitizers see it.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/malloc/background.h"
#include "memoir/malloc/blocks/give_back.h"
#include "memoir/malloc/blocks/store_barrier.h"
#include "memoir/malloc/malloc.h"
#include "support/rounds.h"

namespace memoir::malloc_ {

namespace {

struct Object {
  unsigned char* block = nullptr;
  Size size = 0;
  unsigned char mark = 0;
};

Size random_size(std::mt19937& random) {
  const unsigned kind = random() % 1000;
  if (kind < 900) return random() % 512;
  if (kind < 990) return random() % (40 * kKiB);
  if (kind < 998) return random() % kMiB;
  return random() % (3 * kMiB);
}

Object make(std::mt19937& random, const void* caller) {
  Object object{nullptr, random_size(random), static_cast<unsigned char>(random())};
  const unsigned kind = random() % 16;
  if (kind == 0) {
    const Size alignment = Size{1} << random() % 17;
    object.block = static_cast<unsigned char*>(allocate_aligned(object.size, alignment, caller));
    REQUIRE(reinterpret_cast<std::uintptr_t>(object.block) % alignment == 0);
  } else if (kind == 1) {
    object.block = static_cast<unsigned char*>(allocate_zeroed(object.size, caller));
    REQUIRE(
        std::all_of(object.block, object.block + object.size, [](unsigned char byte) { return byte == 0; }));
  } else {
    object.block = static_cast<unsigned char*>(allocate(object.size, caller));
  }
  REQUIRE(object.block != nullptr);
  REQUIRE(reinterpret_cast<std::uintptr_t>(object.block) % 16 == 0);
  REQUIRE(size_of(object.block) >= object.size);
  std::memset(object.block, object.mark, object.size);
  return object;
}

void check(const Object& object) {
  for (Size i = 0; i < object.size; ++i) {
    if (object.block[i] != object.mark) FAIL("contents changed at byte " << i << " of " << object.size);
  }
}

void change_size(Object& object, std::mt19937& random, const void* caller) {
  const Size size = random_size(random) + 1;
  auto* const moved = static_cast<unsigned char*>(reallocate(object.block, size, caller));
  REQUIRE(moved != nullptr);
  object.block = moved;
  object.size = std::min(object.size, size);
  check(object);
  object.size = size;
  std::memset(moved, object.mark, size);
}

}  // namespace

TEST_CASE("blocks do not overlap, hold what was written, and come at their alignments") {
  std::mt19937 random(1);
  std::vector<Object> live;
  for (int step = 0; step < rounds(60000); ++step) {
    if (live.size() > 2000 || (!live.empty() && random() % 3 == 0)) {
      const size_t at = random() % live.size();
      check(live[at]);
      if (random() % 4 == 0) {
        change_size(live[at], random, &live);
        continue;
      }
      free(live[at].block);
      live[at] = live.back();
      live.pop_back();
    } else {
      live.push_back(make(random, reinterpret_cast<void*>(0x1000 + random() % 64)));
    }
  }
  for (const Object& object : live) {
    check(object);
    free(object.block);
  }
}

TEST_CASE("threads hand objects to each other, and die") {
  std::mutex mutex;
  std::vector<Object> shared;
  std::atomic<int> failures{0};
  const auto work = [&](unsigned seed, int steps) {
    std::mt19937 random(seed);
    std::vector<Object> own;
    for (int step = 0; step < steps; ++step) {
      const unsigned action = random() % 8;
      if (action < 4 || own.empty()) {
        own.push_back(make(random, &shared));
      } else if (action < 6) {
        const size_t at = random() % own.size();
        check(own[at]);
        free(own[at].block);
        own[at] = own.back();
        own.pop_back();
      } else {
        const std::lock_guard lock(mutex);
        if (shared.size() < 500 || action == 6) {
          shared.push_back(own.back());
          own.pop_back();
        } else {
          std::swap(shared[random() % shared.size()], own.back());
        }
        if (shared.size() > 1000) {
          own.insert(own.end(), shared.end() - 500, shared.end());
          shared.resize(shared.size() - 500);
        }
      }
    }
    const std::lock_guard lock(mutex);  // the rest outlives the thread
    shared.insert(shared.end(), own.begin(), own.end());
  };
  for (unsigned round = 0; round < 6; ++round) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, round * 10 + i, rounds(4000));
    for (int i = 0; i < 20; ++i) run_upkeep_now();  // while they are at work
    for (std::thread& thread : threads) thread.join();
  }
  for (const Object& object : shared) {
    check(object);
    free(object.block);
  }
  run_upkeep_now();
  CHECK(failures == 0);
}

TEST_CASE("pages inside spans are given back and come back, contents unharmed") {
  std::mt19937 random(5);
  std::vector<Object> live;
  for (int i = 0; i < 30000; ++i) {
    const Size size = 200 + random() % 3000;
    live.push_back(
        {static_cast<unsigned char*>(allocate(size, &live)), size, static_cast<unsigned char>(random())});
    std::memset(live.back().block, live.back().mark, size);
  }
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (size_t i = live.size(); i-- > 3000;) {
      std::swap(live[i], live[random() % (i + 1)]);
      check(live[i]);
      free(live[i].block);
      live.pop_back();
    }
    CHECK(trim());
    LifetimeHeap::Figures figures;
    {
      const LockGuard guard(central().lock);
      figures = central().heap.figures();
      CHECK(central().heap.consistent());
    }
    CHECK(figures.gone_in_spans > 0);
    CHECK(figures.resident < 40 * kMiB);
    for (const Object& object : live) check(object);
    while (live.size() < 30000) {
      const Size size = 200 + random() % 3000;
      live.push_back(
          {static_cast<unsigned char*>(allocate(size, &live)), size, static_cast<unsigned char>(random())});
      std::memset(live.back().block, live.back().mark, size);
    }
  }
  for (const Object& object : live) {
    check(object);
    free(object.block);
  }
}

TEST_CASE("ranges that go back together go back one by one where the system refuses some") {
  constexpr size_t kPages = 64, kPage = 4096;
  const auto map = [] {
    void* const at =
        ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    std::memset(at, 1, kPages * kPage);
    return static_cast<unsigned char*>(at);
  };
  for (const bool with_hole : {false, true}) {
    unsigned char* const memory = map();
    if (with_hole) REQUIRE(::munmap(memory + 20 * kPage, kPage) == 0);
    iovec ranges[kPages / 2];
    bool gone[kPages / 2];
    for (size_t i = 0; i < kPages / 2; ++i) ranges[i] = {memory + 2 * i * kPage, kPage};
    errno = 7;
    give_back(ranges, kPages / 2, gone);
    CHECK(errno == 7);
    for (size_t i = 0; i < kPages / 2; ++i) {
      const bool hole = with_hole && i == 10;
      CHECK(gone[i] == !hole);
      if (!hole) CHECK(memory[2 * i * kPage] == 0);
      CHECK(memory[(2 * i + 1) * kPage] == 1);
    }
    ::munmap(memory, kPages * kPage);
  }
}

TEST_CASE("remote frees make a whole span free again") {
  std::vector<void*> blocks;
  for (int i = 0; i < 20000; ++i) blocks.push_back(allocate(1000, &blocks));
  const Size before = central().held();
  std::thread([&] {
    for (void* block : blocks) free(block);
  }).join();
  for (int i = 0; i < 4000; ++i)
    free(allocate(1000 + i % 8 * 128, &blocks));  // the owner's slow path takes them in
  trim();
  CHECK(central().held() + 15 * kMiB < before);
}

TEST_CASE("what a thread freed before it went to sleep is not held back") {
  trim();
  const Size before = figures_of_regions().live;
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(allocate(64, &blocks));
  CHECK(figures_of_regions().live >= before + 40 * 64);
  std::atomic<int> step{0};
  std::thread sleeper([&] {  // it never allocates
    for (void* block : blocks) free(block);
    step = 1;
    step.notify_all();
    step.wait(1);
  });
  step.wait(0);
  trim();
  CHECK(figures_of_regions().live <= before);
  step = 2;
  step.notify_all();
  sleeper.join();
}

TEST_CASE("a thread keeps freed blocks of 32 to 512 KiB for its next ones, and gives them back") {
  const auto work = [](unsigned seed, std::vector<Object>& shared, std::mutex& lock) {
    std::mt19937 random(seed);
    std::vector<Object> live(16);
    for (int i = 0; i < 20000; ++i) {
      Object& one = live[random() % live.size()];
      if (random() % 8 == 0) {  // another thread frees it
        const std::lock_guard guard(lock);
        std::swap(one, shared[random() % shared.size()]);
      }
      if (one.block != nullptr) {
        REQUIRE(one.block[0] == one.mark);
        REQUIRE(one.block[one.size - 1] == one.mark);
        free(one.block);
      }
      one.size = 33 * kKiB + random() % (480 * kKiB);
      one.mark = static_cast<unsigned char>(random());
      const bool zero = random() % 16 == 0;
      one.block =
          static_cast<unsigned char*>(zero ? allocate_zeroed(one.size, &live) : allocate(one.size, &live));
      REQUIRE(one.block != nullptr);
      REQUIRE(size_of(one.block) >= one.size);
      for (Size at = 0; zero && at < one.size; at += 512) REQUIRE(one.block[at] == 0);
      one.block[0] = one.block[one.size - 1] = one.mark;
      for (Size at = 4095; at < one.size - 1; at += 4096) one.block[at] = 0xff;
    }
    for (const Object& one : live) free(one.block);
  };
  trim();
  const Size before = central().held();
  std::vector<Object> shared(32);
  std::mutex lock;
  {
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 3; ++seed) threads.emplace_back([&, seed] { work(seed, shared, lock); });
    for (std::thread& thread : threads) thread.join();
  }
  for (const Object& one : shared) free(one.block);
  trim();
  CHECK(central().held() <= before + kMiB);
  // At once the same place, also for a request that is up to a quarter smaller; and a free of a kept one is
  // the free of nothing.
  void* const first = allocate(400 * kKiB, &lock);
  free(first);
  CHECK(size_of(first) == 0);
  void* const again = allocate(330 * kKiB, &lock);
  CHECK(again == first);
  void* const other = allocate(330 * kKiB, &lock);
  CHECK(other != first);
  free(again);
  free(other);
  trim();
  CHECK(central().held() <= before + kMiB);
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("forked children allocate, whatever other threads are doing") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      std::vector<void*> own;
      while (!stop) {
        own.push_back(allocate(random() % 4000, &stop));
        if (own.size() > 500) {
          for (size_t k = 0; k < 400; ++k) free(own[k]);
          own.erase(own.begin(), own.begin() + 400);
        }
      }
      for (void* block : own) free(block);
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::mt19937 random(i);
      for (int k = 0; k < 2000; ++k) free(allocate(random() % 40000, &stop));
      void* kept = nullptr;
      std::thread([&] { kept = allocate(100, &stop); }).join();
      free(kept);
      _exit(trim() || kept != nullptr ? 7 : 8);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

TEST_CASE("heaps of threads that ended are used again") {
  std::thread([] { free(allocate(10, nullptr)); }).join();
  const HeapId before = registry().end();
  for (int i = 0; i < 200; ++i) std::thread([] { free(allocate(10, nullptr)); }).join();
  CHECK(registry().end() == before);
}

TEST_CASE("samples that are still there say who holds memory, the old ones first") {
  LiveSamples samples;
  REQUIRE(samples.start());
  static SiteFigures figures;
  char blocks[64] = {};
  const void *early = &blocks[0], *late = &blocks[1];
  for (int i = 2; i < 12; ++i) samples.born(&blocks[i], early, 100, 1000);
  for (int i = 12; i < 32; ++i) samples.born(&blocks[i], late, 100, 5000);
  samples.freed(&blocks[2]);
  samples.freed(&blocks[2]);   // again: nothing is counted twice
  samples.freed(&blocks[60]);  // was not sampled
  samples.publish(figures, 5000, 2000);
  REQUIRE(figures.count == 2);
  CHECK(figures.changes == 2);
  CHECK(figures.row[0].caller == reinterpret_cast<std::uintptr_t>(early));
  CHECK(figures.row[0].live == 900);
  CHECK(figures.row[0].old == 900);
  CHECK(figures.row[0].samples == 9);
  CHECK(figures.row[1].caller == reinterpret_cast<std::uintptr_t>(late));
  CHECK(figures.row[1].live == 2000);
  CHECK(figures.row[1].old == 0);
  // More blocks than places: the number of rows and what they claim stay bounded.
  static char many[1 << 16];
  for (size_t i = 0; i < sizeof many; ++i) samples.born(&many[i], &many[i % 2000], 1, 9000);
  samples.publish(figures, 9000, 2000);
  CHECK(figures.count == SiteFigures::kMost);
  Size live = 0;
  for (const auto& row : figures.row) live += row.live;
  CHECK(live <= sizeof many + 2900);
}

TEST_CASE("a sample's weight is its size over its chance") {
  LiveLearner sampler;
  REQUIRE(sampler.start({2, 128 * kKiB}));
  const auto every = static_cast<double>(128 * kKiB);
  for (const double x : {0.001, 0.1, 0.5, 1.0, 2.0, 2.4, 3.0, 10.0}) {
    const double size = x * every, right = size / (1 - std::exp(-x));
    CHECK(static_cast<double>(sampler.weight(static_cast<Size>(size))) / right ==
          doctest::Approx(1).epsilon(0.07));
  }
}

TEST_CASE("large blocks move with their contents, and no more than the budget is kept") {
  auto* block = static_cast<unsigned char*>(allocate(2 * kMiB, nullptr));
  for (Size i = 0; i < 2 * kMiB; ++i) block[i] = static_cast<unsigned char>(i * 7);
  block = static_cast<unsigned char*>(reallocate(block, 40 * kMiB, nullptr));
  for (Size i = 0; i < 2 * kMiB; i += 97) REQUIRE(block[i] == static_cast<unsigned char>(i * 7));
  block = static_cast<unsigned char*>(reallocate(block, kMiB, nullptr));
  for (Size i = 0; i < kMiB; i += 97) REQUIRE(block[i] == static_cast<unsigned char>(i * 7));
  free(block);
  std::vector<void*> many;
  for (int i = 0; i < 40; ++i) many.push_back(allocate(8 * kMiB + i * kMiB / 2, nullptr));
  for (void* one : many) free(one);
  CHECK(central().large.cached() <= central().options.cache);
  CHECK(size_of(many[0]) == 0);
  trim();
  CHECK(central().large.cached() == 0);
}

TEST_CASE("many large blocks hold what was written, move with it, are zero when asked, and go back") {
  struct Held {
    std::uint32_t* words = nullptr;
    Size count = 0;
    std::uint32_t mark = 0;
    bool intact() const {
      return words[0] == mark && words[count / 2] == mark + 1 && words[count - 1] == mark + 2;
    }
    void write(std::uint32_t to) {
      mark = to;
      words[0] = mark;
      words[count / 2] = mark + 1;
      words[count - 1] = mark + 2;
    }
  };
  constexpr size_t kMany = 4300;  // more than have mappings of their own
  std::mt19937 random(11);
  const auto words = [&] { return (520 * kKiB + random() % (random() % 400 == 0 ? 40 * kMiB : kMiB)) / 4; };
  std::vector<Held> held(kMany);
  const Size before = central().large.count();
  for (std::uint32_t step = 1; step <= kMany + static_cast<std::uint32_t>(rounds(2000)); ++step) {
    Held& one = held[step <= kMany ? step - 1 : random() % kMany];
    const Size count = words();
    if (one.words != nullptr) {
      REQUIRE(one.intact());
      if (random() % 2 == 0) {
        const std::uint32_t first = one.words[0];
        one.words = static_cast<std::uint32_t*>(reallocate(one.words, count * 4, nullptr));
        REQUIRE(one.words != nullptr);
        REQUIRE(one.words[0] == first);
        if (count >= one.count) REQUIRE(one.intact());
        one.count = count;
        one.write(step << 2);
        continue;
      }
      free(one.words);
    }
    one.words = static_cast<std::uint32_t*>(allocate_zeroed(count * 4, nullptr));
    REQUIRE(one.words != nullptr);
    for (const Size at : {Size{0}, count / 2, count - 1}) REQUIRE(one.words[at] == 0);
    for (Size i = 0; step > kMany && i < count; i += 16384 - 1) {
      if (one.words[i] != 0) FAIL("a word of a zeroed block is " << one.words[i]);
    }
    one.count = count;
    one.write(step << 2);
  }
  CHECK(central().large.count() == before + kMany);
  for (Held& one : held) {
    REQUIRE(one.intact());
    free(one.words);
  }
  trim();
  CHECK(central().large.count() == before);
  CHECK(central().large.cached() == 0);
}

TEST_CASE("where somebody else has mapped something the arena leaves a gap") {
  void* foreign[4] = {};
  std::vector<Object> live;
  std::mt19937 random(2);
  live.push_back(make(random, &live));
  for (void*& one : foreign) {
    // Inside the next step that the arena grows by.
    void* const at = address_of(arena_size() + 4 * kMiB);
    one = ::mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(one == at);
    *static_cast<char*>(one) = 77;
    for (const Size end = arena_size() + 16 * kMiB; arena_size() < end;) live.push_back(make(random, &live));
  }
  for (void* one : foreign) {
    CHECK(offset_of(one) < arena_size());
    CHECK(*static_cast<char*>(one) == 77);
    CHECK(size_of(one) == 0);  // not a block
  }
  for (const Object& object : live) {
    check(object);
    free(object.block);
  }
  for (void* one : foreign) ::munmap(one, 4096);
  trim();
}

TEST_CASE("large blocks made of the pages of others hold what was written, move with it, and can be zero") {
  struct Held {
    std::uint64_t* words = nullptr;
    Size count = 0;
    std::uint64_t mark = 0;
    void write() {
      for (Size i = 0; i < count; i += 511) words[i] = mark + i;
    }
    bool intact(Size upto) const {
      for (Size i = 0; i < upto; i += 511) {
        if (words[i] != mark + i) return false;
      }
      return true;
    }
  };
  std::mt19937 random(3);
  const auto words = [&] { return (600 * kKiB + random() % (9 * kMiB)) / 8; };
  Held held[12];
  for (std::uint64_t step = 1; step <= 1500; ++step) {
    Held& one = held[random() % 12];
    REQUIRE(one.intact(one.count));
    const Size count = words();
    if (one.words != nullptr && random() % 3 == 0) {
      auto* const moved = static_cast<std::uint64_t*>(reallocate(one.words, count * 8, nullptr));
      REQUIRE(moved != nullptr);
      one.words = moved;
      REQUIRE(one.intact(std::min(one.count, count)));
    } else {
      free(one.words);
      const bool zero = random() % 3 == 0;
      one.words = static_cast<std::uint64_t*>(zero ? allocate_zeroed(count * 8, nullptr)
                                                   : allocate(count * 8, nullptr));
      REQUIRE(one.words != nullptr);
      for (Size i = 0; zero && i < count; i += 61) REQUIRE(one.words[i] == 0);
    }
    one.count = count;
    one.mark = step << 32;
    one.write();
    REQUIRE(size_of(one.words) >= count * 8);
  }
  for (Held& one : held) {
    CHECK(one.intact(one.count));
    free(one.words);
  }
  CHECK(central().large.live() == 0);
  trim();
  CHECK(central().large.cached() == 0);
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("what is kept for later never makes a request fail") {
  const pid_t child = fork();
  if (child == 0) {
    void* const held = allocate(256 * kMiB, nullptr);
    std::vector<void*> many;
    for (int i = 0; i < 48; ++i) many.push_back(allocate(kMiB, nullptr));
    for (void* one : many) free(one);
    if (held == nullptr || central().large.cached() < 32 * kMiB) _exit(1);
    unsigned long pages = 0;  // of address space, as it is now
    std::FILE* const file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) _exit(2);
    std::fclose(file);
    const rlim_t most = pages * 4 * kKiB + 8 * kMiB;
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
    if (allocate(24 * kMiB, nullptr) == nullptr) _exit(4);
    _exit(central().large.cached() == 0 ? 0 : 5);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif

}  // namespace memoir::malloc_
