// SPDX-License-Identifier: Apache-2.0
// Everything at once: sizes from 16 bytes to 256 KiB, lifetimes from one step to the whole run, malloc,
// calloc, realloc and aligned_alloc, objects handed between threads, threads that end and start again; the
// content of every block is checked before it is freed. The pattern of mimalloc's `test-stress` (Leijen,
// Zorn, de Moura, "Mimalloc: Free List Sharding in Action", MSR-TR-2019-18, section 4). What it shows:
// correctness first, then a mixed speed.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "workload.h"

using namespace memoir::bench;

namespace {

constexpr size_t kShared = 1024;  // slots through which threads hand objects over
constexpr uint64_t kRounds = 8;   // generations of threads

struct Block {  // what every block begins with; its last word repeats the size
  uint64_t size;
};

std::atomic<Block*> shared[kShared];

Block* make(Random& random) {
  // one request in 512 is large: rare, but most of the bytes
  const size_t size = 16 + (random.below(512) == 0 ? random.below(256 << 10) : random.size(1024));
  void* memory = nullptr;
  switch (random.below(8)) {
    case 0: {
      memory = std::calloc(1, size);
      for (size_t i = 0; memory != nullptr && i < size; i += 512) {
        if (static_cast<char*>(memory)[i] != 0)
          check(memory, size, 0);  // calloc must clear: ends the program
      }
      break;
    }
    case 1: {
      const size_t alignment = size_t{16} << random.below(6);
      const size_t rounded = (size + alignment - 1) / alignment * alignment;
      memory = std::aligned_alloc(alignment, rounded);
      if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
        std::fprintf(stderr, "workload: aligned_alloc(%zu, %zu) gave %p\n", alignment, rounded, memory);
        std::exit(4);
      }
      break;
    }
    default:
      memory = allocate(size);
  }
  if (memory == nullptr) std::exit(3);
  fill(memory, size, size);
  return static_cast<Block*>(memory);
}

void destroy(Block* block) {
  if (block == nullptr) return;
  check(block, block->size, block->size);
  std::free(block);
}

Block* grow(Block* block) {
  const size_t before = block->size, after = before + before / 2 + 8;
  check(block, before, before);
  block = static_cast<Block*>(std::realloc(block, after));
  if (block == nullptr) std::exit(3);
  check(block, before, before);
  fill(block, after, after);
  return block;
}

void stress(uint64_t steps, uint64_t seed) {
  Random random(seed);
  std::vector<Block*> own(2000, nullptr);
  for (uint64_t i = 0; i < steps; ++i) {
    Block*& slot = own[random.below(own.size())];
    const uint64_t dice = random.below(16);
    if (dice == 0 && slot != nullptr && slot->size < 4096) {
      slot = grow(slot);
    } else if (dice == 1) {
      slot = shared[random.below(kShared)].exchange(slot, std::memory_order_acq_rel);
    } else {
      destroy(slot);
      slot = make(random);
    }
  }
  for (Block* block : own) destroy(block);
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const uint64_t steps = workload.operations(2'400'000) / kRounds + 1;
  const double start = seconds();
  for (uint64_t round = 0; round < kRounds; ++round) {
    run_threads(workload.threads, [&](int thread) {
      stress(steps, workload.seed + round * 1000 + static_cast<uint64_t>(thread));
    });
  }
  for (auto& slot : shared) destroy(slot.exchange(nullptr));
  report(steps * kRounds * static_cast<uint64_t>(workload.threads), seconds() - start);
}
