// SPDX-License-Identifier: Apache-2.0
// Overlapping generations: blocks come in groups of one size, groups of one size after the other, small
// sizes in larger groups; each group outlives some of the groups after it, and is freed forwards,
// backwards, or every other block first. The pattern of `sh6bench` and `sh8bench` (MicroQuill's SmartHeap
// benchmarks, 1997), which mix stack-like and queue-like lifetimes. What it shows: whether free lists stay
// in good order when frees do not come in the order of allocations.
#include <cstdlib>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

struct Group {
  std::vector<void*> blocks;
  size_t size = 0;
};

void make(Group& group, size_t size, size_t number) {
  group.size = size;
  group.blocks.resize(number);
  for (void*& block : group.blocks) {
    block = allocate(size);
    *static_cast<char*>(block) = 1;
    use(block);
  }
}

void drop(Group& group, uint64_t how) {
  const size_t number = group.blocks.size();
  if (how == 0) {
    for (size_t i = 0; i < number; ++i) std::free(group.blocks[i]);
  } else if (how == 1) {
    for (size_t i = number; i-- > 0;) std::free(group.blocks[i]);
  } else {
    for (size_t first : {0, 1}) {
      for (size_t i = first; i < number; i += 2) std::free(group.blocks[i]);
    }
  }
  group.blocks.clear();
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  constexpr size_t kAlive = 8, kPerRound = 2000;
  const uint64_t rounds = workload.operations(4'000);
  const double start = seconds();
  run_threads(workload.threads, [&](int thread) {
    Random random(workload.seed + static_cast<uint64_t>(thread));
    std::vector<Group> alive(kAlive);
    for (uint64_t round = 0; round < rounds; ++round) {
      Group& group = alive[random.below(kAlive)];  // some live for one round, some for many
      drop(group, random.below(3));
      const size_t size = 8 + 24 * (round % 40);
      make(group, size, kPerRound * 24 / (24 + size / 8));
    }
    for (Group& group : alive) drop(group, 0);
  });
  report(rounds * kPerRound * static_cast<uint64_t>(workload.threads), seconds() - start);
}
