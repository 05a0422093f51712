// SPDX-License-Identifier: Apache-2.0
// False sharing: threads write to small objects of their own, which lie on one cache line if the allocator
// put them there. Actively, it gives neighbouring objects to threads that allocate at the same time;
// passively, it gives a thread the very line that another thread's object came from. The patterns of
// `cache-thrash` and `cache-scratch` (Berger, McKinley, Blumofe, Wilson, "Hoard", ASPLOS 2000, section 4.1).
// What it shows: nothing with one thread, and many times the wall time with several when lines are shared.
#include <cstdlib>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

constexpr size_t kSize = 8;        // eight of them fit on a line of 64 bytes
constexpr uint64_t kWrites = 500;  // writes to an object before it is replaced

void scratch(void* first, uint64_t objects) {
  void* block = first;
  for (uint64_t i = 0; i < objects; ++i) {
    auto* word = static_cast<volatile uint64_t*>(block);
    for (uint64_t write = 0; write < kWrites; ++write) *word = *word + write;
    std::free(block);
    block = allocate(kSize);
    *static_cast<uint64_t*>(block) = 0;
  }
  std::free(block);
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const uint64_t objects = workload.operations(300'000) / 2;
  const double start = seconds();
  // passive: all first objects come from this thread, one next to the other
  std::vector<void*> first(static_cast<size_t>(workload.threads));
  for (void*& block : first) {
    block = allocate(kSize);
    *static_cast<uint64_t*>(block) = 0;
  }
  run_threads(workload.threads, [&](int thread) { scratch(first[static_cast<size_t>(thread)], objects); });
  // active: every thread allocates its own
  run_threads(workload.threads, [&](int) {
    void* block = allocate(kSize);
    *static_cast<uint64_t*>(block) = 0;
    scratch(block, objects);
  });
  report(2 * objects * static_cast<uint64_t>(workload.threads), seconds() - start);
}
