// SPDX-License-Identifier: Apache-2.0
//
// A malloc under stress: threads that are born and die, blocks of any size and alignment that one thread
// makes and another frees, load that comes and goes, and forked children. Every block is filled with a
// pattern of its own, which is looked at before it is freed, resized or handed on. Meanwhile the malloc is
// asked for its figures.
//
//   stress --operations N --first-seed S [--forks 0]
//
// prints {"done": N} at the end, and ends with another status than 0 where bytes changed. As it stands it is
// run under a malloc (LD_PRELOAD). With STRESS_FUNCTIONS it calls memoir's malloc as functions, for
// sanitizers, which bring a malloc of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#ifdef STRESS_FUNCTIONS
#include "memoir/malloc/background.h"
#include "memoir/malloc/malloc.h"
#else
#include <malloc.h>
#endif

namespace {

#ifdef STRESS_FUNCTIONS
namespace tried = memoir::malloc_;
__attribute__((noinline)) void* take(size_t size) {
  return tried::allocate(size, __builtin_return_address(0));
}
void* take_zeroed(size_t size) { return tried::allocate_zeroed(size, __builtin_return_address(0)); }
void* take_aligned(size_t size, size_t alignment) {
  return tried::allocate_aligned(size, alignment, __builtin_return_address(0));
}
void* take_again(void* block, size_t size) {
  return tried::reallocate(block, size, __builtin_return_address(0));
}
void give(void* block) { tried::free(block); }
size_t room_of(void* block) { return tried::size_of(block); }
void trim() { tried::trim(); }
/// What malloc_info, mallinfo and malloc_stats count.
void ask_figures() {
  char text[2048];
  tried::write_statistics(text, sizeof text);
  tried::figures_of_regions();
}
#else
void* take(size_t size) { return std::malloc(size); }
void* take_zeroed(size_t size) { return std::calloc(1, size); }
void* take_aligned(size_t size, size_t alignment) { return ::memalign(alignment, size); }
void* take_again(void* block, size_t size) { return std::realloc(block, size); }
void give(void* block) { std::free(block); }
size_t room_of(void* block) { return ::malloc_usable_size(block); }
void trim() { ::malloc_trim(0); }
void ask_figures() {
  if (std::FILE* const nowhere = std::fopen("/dev/null", "w"); nowhere != nullptr) {
    ::malloc_info(0, nowhere);
    std::fclose(nowhere);
  }
}
#endif

constexpr size_t kThreads = 4;            // at a time
constexpr size_t kOwn = 12000;            // blocks of a thread
constexpr size_t kShared = 4096;          // places where threads leave blocks for each other
constexpr std::uint64_t kLife = 400'000;  // operations of a thread
constexpr size_t kEdge = 512;  // of larger blocks only the edges, and a word in each page, are filled
constexpr unsigned kPatience =
    240;  // seconds that a child or the last thread may take before it counts as stuck

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull | 1) {}
  std::uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 2685821657736338717ull >> 16;
  }
  std::uint64_t below(std::uint64_t limit) { return (*this)() % limit; }

 private:
  std::uint64_t state_;
};

struct Block {
  unsigned char* bytes = nullptr;
  std::uint32_t size = 0;
  unsigned char mark = 0;
};

[[noreturn]] void wrong(const char* what, const Block& one, size_t at) {
  std::fprintf(stderr, "stress: %s: byte %zu of %u at %p\n", what, at, one.size,
               static_cast<void*>(one.bytes));
  std::abort();
}

/// Visits what is filled and looked at of [0, size): all of a small block; of a larger one its edges and the
/// first bytes of each page between them.
template <class Visit>
void for_parts(size_t size, Visit visit) {
  if (size <= 2 * kEdge) return visit(0, size);
  visit(0, kEdge);
  for (size_t at = 4096; at + 16 < size - kEdge; at += 4096) visit(at, 16);
  visit(size - kEdge, kEdge);
}

void fill(const Block& one) {
  for_parts(one.size, [&](size_t at, size_t count) { std::memset(one.bytes + at, one.mark, count); });
}

void look_at(const Block& one, unsigned char expected, size_t at, size_t count) {
  for (size_t i = at; i < at + count; ++i) {
    if (one.bytes[i] != expected) wrong("changed", one, i);
  }
}

void look(const Block& one) {
  for_parts(one.size, [&](size_t at, size_t count) { look_at(one, one.mark, at, count); });
}

std::uint32_t any_size(Random& random) {
  const std::uint64_t kind = random.below(10000);
  if (kind < 8000) return static_cast<std::uint32_t>(random.below(257));
  if (kind < 9600) return static_cast<std::uint32_t>(random.below(2000));
  if (kind < 9980) return static_cast<std::uint32_t>(random.below(20'000));
  if (kind < 9998) return static_cast<std::uint32_t>(random.below(300'000));
  return static_cast<std::uint32_t>(random.below(3'000'000));
}

Block make(Random& random) {
  Block one{nullptr, any_size(random), static_cast<unsigned char>(random())};
  const std::uint64_t how = random.below(32);
  if (how == 0) {
    const size_t alignment = size_t{16} << random.below(10);
    one.bytes = static_cast<unsigned char*>(take_aligned(one.size, alignment));
    if (reinterpret_cast<std::uintptr_t>(one.bytes) % alignment != 0) wrong("alignment", one, alignment);
  } else if (how < 4) {
    one.bytes = static_cast<unsigned char*>(take_zeroed(one.size));
    if (one.bytes != nullptr)
      for_parts(one.size, [&](size_t at, size_t count) { look_at(one, 0, at, count); });
  } else {
    one.bytes = static_cast<unsigned char*>(take(one.size));
  }
  if (one.bytes == nullptr) wrong("no memory", one, 0);
  if (room_of(one.bytes) < one.size) wrong("too small", one, room_of(one.bytes));
  fill(one);
  return one;
}

void drop(Block& one) {
  if (one.bytes == nullptr) return;
  look(one);
  give(one.bytes);
  one.bytes = nullptr;
}

void resize(Block& one, Random& random) {
  const std::uint32_t old = one.size, size = any_size(random) + 1;
  look(one);
  one.bytes = static_cast<unsigned char*>(take_again(one.bytes, size));
  one.size = size;
  if (one.bytes == nullptr) wrong("no memory to resize", one, old);
  // What was filled, and is in the block still, came along.
  for_parts(old, [&](size_t at, size_t count) {
    if (at < size) look_at(one, one.mark, at, at + count <= size ? count : size - at);
  });
  fill(one);
}

struct Place {
  std::atomic_flag taken = ATOMIC_FLAG_INIT;
  Block block;
};
Place places[kShared];
std::atomic<std::uint64_t> left{0};  // operations to begin
std::atomic<std::uint64_t> done{0};

/// Leaves a block for the others, and gets what lay there.
void exchange(Block& one, Random& random) {
  Place& place = places[random.below(kShared)];
  if (place.taken.test_and_set(std::memory_order_acquire)) return;
  std::swap(place.block, one);
  place.taken.clear(std::memory_order_release);
}

/// So many operations on blocks of its own; how many of these are full at most changes: load comes and goes.
void operate(std::vector<Block>& own, std::uint64_t count, Random& random) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i % 50'000 == 49'999 && random.below(3) == 0) {
      for (Block& one : own) {
        if (random.below(10) != 0) drop(one);
      }
    }
    Block& one = own[random.below(own.size())];
    if (one.bytes == nullptr) {
      one = make(random);
      continue;
    }
    const std::uint64_t what = random.below(16);
    if (what == 0) resize(one, random);
    else if (what < 4) exchange(one, random);
    else drop(one);
  }
}

void live(std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t before = left.load();
  std::uint64_t mine = random.below(kLife) + 1;
  for (std::uint64_t now = before; !left.compare_exchange_weak(now, now - (mine < now ? mine : now));) {
  }
  std::vector<Block> own(1 + random.below(kOwn));
  operate(own, mine, random);
  done += mine;
  // Some die and leave all their blocks to the others.
  for (Block& one : own) {
    if (one.bytes != nullptr && random.below(4) == 0) exchange(one, random);
    drop(one);
  }
}

/// A child has all blocks of this thread, and none of the other threads; it allocates, on two threads.
bool child_lives(std::vector<Block>& own, std::uint64_t seed) {
  ::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return true;  // the system's limit, not ours
  if (child == 0) {
    ::alarm(kPatience);
    Random random(seed);
    for (const Block& one : own) {
      if (one.bytes != nullptr) look(one);
    }
    operate(own, 3000, random);
    std::thread([&] {
      std::vector<Block> more(300);
      Random other(seed + 1);
      operate(more, 3000, other);
      for (Block& one : more) drop(one);
    }).join();
    for (Block& one : own) drop(one);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) std::fprintf(stderr, "stress: a forked child ended with status %d\n", status);
  return status == 0;
}

}  // namespace

int main(int words, char** word) {
  std::uint64_t operations = 0, seed = 0, forks = 1;
  for (int i = 1; i + 1 < words; i += 2) {
    const std::uint64_t value = std::strtoull(word[i + 1], nullptr, 10);
    if (std::strcmp(word[i], "--operations") == 0) operations = value;
    if (std::strcmp(word[i], "--first-seed") == 0) seed = value;
    if (std::strcmp(word[i], "--forks") == 0) forks = value;
  }
  if (operations == 0) return std::fputs("stress --operations N --first-seed S [--forks 0]\n", stderr), 2;
  left = operations;
  Random random(seed);
  std::vector<Block> own(2000);
  bool well = true;
  std::uint64_t lives = seed;
  while (left.load() != 0 && well) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(live, ++lives);
    // This thread goes on among them, and forks while they work.
    for (int i = 0; i < 3; ++i) {
      operate(own, 5000, random);
      done += 5000;
      ask_figures();
      if (forks != 0) well = child_lives(own, lives + i) && well;
    }
    for (std::thread& one : threads) one.join();
    if (random.below(8) == 0) trim();
  }
  for (Block& one : own) drop(one);
  for (Place& place : places) drop(place.block);
  if (!well) return 1;
  std::printf("{\"done\": %llu}\n", static_cast<unsigned long long>(done.load()));
  return 0;
}
