// SPDX-License-Identifier: Apache-2.0
// Random replacement: a table of slots; each step picks one and frees what is there, or fills it. Few
// slots are picked very often and most of them rarely, so that objects of all ages lie next to each other.
// The pattern of `alloc-test` (Ignatchenko, "Testing Memory Allocators", 2018), whose slots are Pareto-
// distributed too. What it shows: the cost of a free of something that has long left every cache, and of a
// heap full of holes.
#include <cstdlib>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

constexpr size_t kSlots = 1 << 16;

// One slot in five is picked four times out of five, and so on within that fifth.
size_t pick(Random& random) {
  size_t limit = kSlots;
  while (limit > 64 && random.below(5) != 0) limit = limit / 5 + 1;
  return random.below(limit);
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const uint64_t steps = workload.operations(8'000'000);
  const double start = seconds();
  run_threads(workload.threads, [&](int thread) {
    Random random(workload.seed + static_cast<uint64_t>(thread));
    std::vector<void*> slots(kSlots, nullptr);
    std::vector<size_t> sizes(kSlots, 0);
    for (uint64_t step = 0; step < steps; ++step) {
      const size_t at = pick(random);
      if (slots[at] == nullptr) {
        sizes[at] = 16 + random.size(4096);
        slots[at] = allocate(sizes[at]);
        fill(slots[at], sizes[at], at);
      } else {
        check(slots[at], sizes[at], at);
        std::free(slots[at]);
        slots[at] = nullptr;
      }
    }
    for (void* block : slots) std::free(block);
  });
  report(steps / 2 * static_cast<uint64_t>(workload.threads), seconds() - start);
}
