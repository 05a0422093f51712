// SPDX-License-Identifier: Apache-2.0
// What the built-in workloads share: options, a random generator that costs next to nothing, threads, and
// what they print. A workload does a fixed amount of work, load units in each of its threads, so that its
// wall time is its result; it prints `operations_per_second: X` (one operation is one allocation and its
// free) and, where memory is the point, a line `memory SECONDS LIVE RESIDENT` (bytes) for each moment looked
// at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace memoir::bench {

struct Workload {
  int threads = 1;
  int load = 1;  // units of work per thread
  uint64_t seed = 1;
  bool smoke = false;  // a hundredth of the work: does it run at all?

  // `full` operations at load 1, scaled by the load and by --smoke.
  uint64_t operations(uint64_t full) const { return smoke ? full * load / 100 + 1 : full * load; }
};

// Reads --threads N --load N --seed N --smoke; anything else ends the program with exit code 2.
Workload parse(int count, char** arguments);

// xorshift64* (Vigna 2016): fast and good enough to pick sizes and slots.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Dull;
  }
  uint64_t below(uint64_t limit) { return (static_cast<unsigned __int128>(next()) * limit) >> 64; }
  // Sizes as programs ask for them: half of all requests in the lowest power of two of [16, limit], and each
  // power above it half as often as the one below.
  size_t size(size_t limit);

 private:
  uint64_t state_;
};

// Runs body(thread) in `threads` threads and waits for all.
void run_threads(int threads, const std::function<void(int)>& body);

double seconds();           // of a clock that never steps
size_t resident_bytes();    // of this process, from /proc/self/statm
size_t memory_available();  // of the machine, or of this process's limit when that is less

// Allocates or ends the program with exit code 3: a workload never goes on without its memory.
void* allocate(size_t size);

// Marks memory as used, so that no optimiser removes it or what led to it.
inline void use(void* pointer) { asm volatile("" : : "g"(pointer) : "memory"); }

// A block whose first and last word say which block it is: found damaged, the program ends with exit code 4.
void fill(void* block, size_t size, uint64_t mark);
void check(const void* block, size_t size, uint64_t mark);

void report_memory(double since, size_t live);
void report(uint64_t operations, double elapsed);

}  // namespace memoir::bench
