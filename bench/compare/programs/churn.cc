// SPDX-License-Identifier: Apache-2.0
// Thread-local churn: every thread allocates a batch of small objects and frees it again, over and over; no
// object leaves its thread. The pattern of `threadtest` (Berger, McKinley, Blumofe, Wilson, "Hoard", ASPLOS
// 2000, section 4.1), with sizes mixed instead of one size. What it shows: the cost of the fast path, and
// whether threads disturb each other although they share nothing.
#include <cstdlib>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  constexpr size_t kBatch = 1000;
  const uint64_t batches = workload.operations(12'000);
  const double start = seconds();
  run_threads(workload.threads, [&](int thread) {
    Random random(workload.seed + static_cast<uint64_t>(thread));
    std::vector<void*> batch(kBatch);
    std::vector<size_t> sizes(kBatch);
    for (size_t& size : sizes) size = random.size(512);
    for (uint64_t round = 0; round < batches; ++round) {
      for (size_t i = 0; i < kBatch; ++i) {
        batch[i] = allocate(sizes[i]);
        *static_cast<char*>(batch[i]) = static_cast<char>(i);
        use(batch[i]);
      }
      // even rounds free in order, odd ones in reverse: neither a queue nor a stack alone
      for (size_t i = 0; i < kBatch; ++i) std::free(batch[round % 2 == 0 ? i : kBatch - 1 - i]);
    }
  });
  report(batches * kBatch * static_cast<uint64_t>(workload.threads), seconds() - start);
}
