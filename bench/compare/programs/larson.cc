// SPDX-License-Identifier: Apache-2.0
// A server: each thread owns a table of live objects and keeps replacing one at random by one of another
// random size; after a while it ends and hands its table to a new thread, which goes on freeing what others
// allocated. The pattern of Larson & Krishnan, "Memory Allocation for Long-Running Server Applications", ISMM
// 1998. What it shows: frees from another thread than the allocating one, and what happens to the caches of
// threads that end.
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

constexpr size_t kObjects = 5000;
constexpr uint64_t kGenerations = 16;  // threads that live one after another on one table

struct Object {
  void* block;
  size_t size;
};

void serve(std::vector<Object>& table, uint64_t requests, uint64_t seed) {
  Random random(seed);
  for (uint64_t i = 0; i < requests; ++i) {
    Object& object = table[random.below(table.size())];
    check(object.block, object.size, object.size);
    std::free(object.block);
    object.size = random.size(1024);
    object.block = allocate(object.size);
    fill(object.block, object.size, object.size);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const uint64_t requests = workload.operations(5'000'000) / kGenerations + 1;
  const size_t threads = static_cast<size_t>(workload.threads);
  std::vector<std::vector<Object>> tables(threads);
  Random random(workload.seed);
  for (auto& table : tables) {
    for (size_t i = 0; i < kObjects; ++i) {
      const size_t size = random.size(1024);
      table.push_back({allocate(size), size});
      fill(table.back().block, size, size);
    }
  }
  const double start = seconds();
  for (uint64_t generation = 0; generation < kGenerations; ++generation) {
    run_threads(workload.threads, [&](int thread) {
      // tables wander, so a thread never gets the one that it left
      const size_t own = (static_cast<size_t>(thread) + generation) % threads;
      serve(tables[own], requests, workload.seed + generation * 1000 + own);
    });
  }
  const double elapsed = seconds() - start;
  for (auto& table : tables) {
    for (Object& object : table) std::free(object.block);
  }
  report(requests * kGenerations * threads, elapsed);
}
