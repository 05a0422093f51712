// SPDX-License-Identifier: Apache-2.0
// Growth and shrinkage: live bytes rise to a peak and fall to a tenth, again and again; survivors are
// scattered, and sizes shift upwards from cycle to cycle, so the holes of one cycle do not fit the next.
// After Wilson, Johnstone, Neely, Boles, "Dynamic Storage Allocation: A Survey and Critical Review", IWMM
// 1995, section 2.4 (ramps, peaks, plateaus), and Johnstone & Wilson, "The Memory Fragmentation Problem:
// Solved?", ISMM 1998. What it shows: resident bytes against live bytes over time: memory that is held
// although nobody uses it.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

struct Object {
  void* block;
  size_t size;
};

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const size_t threads = static_cast<size_t>(workload.threads);
  // the peak of all threads together stays far below what the machine has
  const size_t wanted = workload.smoke ? size_t{4} << 20 : size_t{32} << 20;
  const size_t peak = std::min(wanted, memory_available() / 8 / threads);
  const uint64_t cycles = workload.smoke ? 3 : 6 * static_cast<uint64_t>(workload.load);
  std::vector<std::vector<Object>> objects(threads);
  std::vector<size_t> live(threads);
  std::atomic<uint64_t> operations{0};
  const double start = seconds();
  auto total = [&] {
    size_t sum = 0;
    for (size_t bytes : live) sum += bytes;
    return sum;
  };
  for (uint64_t cycle = 0; cycle < cycles; ++cycle) {
    const size_t base = 32 + 24 * (cycle % 8);  // the next cycle's objects are larger than this one's holes
    run_threads(workload.threads, [&](int thread) {
      auto& own = objects[static_cast<size_t>(thread)];
      size_t& bytes = live[static_cast<size_t>(thread)];
      Random random(workload.seed + cycle * 1000 + static_cast<uint64_t>(thread));
      const size_t before = own.size();
      while (bytes < peak) {
        const size_t size = base + random.size(random.below(64) == 0 ? 32 << 10 : 256);
        own.push_back({allocate(size), size});
        std::memset(own.back().block, static_cast<int>(size), size);  // live bytes are resident bytes
        bytes += size;
      }
      operations += own.size() - before;
    });
    report_memory(start, total());
    run_threads(workload.threads, [&](int thread) {
      auto& own = objects[static_cast<size_t>(thread)];
      size_t& bytes = live[static_cast<size_t>(thread)];
      Random random(workload.seed + cycle * 1000 + 500 + static_cast<uint64_t>(thread));
      while (bytes > peak / 10 && !own.empty()) {
        Object& victim = own[random.below(own.size())];
        const auto* content = static_cast<const unsigned char*>(victim.block);
        const auto mark = static_cast<unsigned char>(victim.size);
        if (content[0] != mark || content[victim.size - 1] != mark) std::exit(4);
        std::free(victim.block);
        bytes -= victim.size;
        victim = own.back();
        own.pop_back();
      }
    });
    report_memory(start, total());
  }
  const double elapsed = seconds() - start;
  for (auto& own : objects) {
    for (Object& object : own) std::free(object.block);
  }
  report_memory(start, 0);
  report(operations, elapsed);
}
