// SPDX-License-Identifier: Apache-2.0
#include "workload.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace memoir::bench {

namespace {

[[noreturn]] void refuse(const char* argument) {
  std::fprintf(stderr, "workload: bad argument %s\nuse --threads N --load N --seed N --smoke\n", argument);
  std::exit(2);
}

}  // namespace

Workload parse(int count, char** arguments) {
  Workload workload;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--smoke") == 0) {
      workload.smoke = true;
      continue;
    }
    if (i + 1 == count) refuse(arguments[i]);
    char* end = nullptr;
    const long long value = std::strtoll(arguments[i + 1], &end, 10);
    if (*end != '\0' || value < 1 || value > 1'000'000'000) refuse(arguments[i + 1]);
    if (std::strcmp(arguments[i], "--threads") == 0) {
      workload.threads = static_cast<int>(value);
    } else if (std::strcmp(arguments[i], "--load") == 0) {
      workload.load = static_cast<int>(value);
    } else if (std::strcmp(arguments[i], "--seed") == 0) {
      workload.seed = static_cast<uint64_t>(value);
    } else {
      refuse(arguments[i]);
    }
    ++i;
  }
  return workload;
}

size_t Random::size(size_t limit) {
  const uint64_t bits = next();
  const int octave = std::countr_zero(bits | (uint64_t{1} << 40));
  const size_t base = size_t{16} << octave;
  if (base >= limit) return 16 + below(limit - 16);
  return std::min(base + static_cast<size_t>((bits >> 41) % base), limit);
}

void run_threads(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) running.emplace_back(body, thread);
  for (std::thread& thread : running) thread.join();
}

double seconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

size_t resident_bytes() {
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  char* rest = text;
  std::strtoull(text, &rest, 10);
  return std::strtoull(rest, nullptr, 10) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t memory_available() {
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return std::min<size_t>(machine, limit.rlim_cur);
  }
  return machine;
}

void* allocate(size_t size) {
  void* pointer = std::malloc(size);
  if (pointer == nullptr) {
    std::fprintf(stderr, "workload: malloc(%zu) failed\n", size);
    std::exit(3);
  }
  return pointer;
}

void fill(void* block, size_t size, uint64_t mark) {
  std::memcpy(block, &mark, sizeof mark);
  std::memcpy(static_cast<char*>(block) + size - sizeof mark, &mark, sizeof mark);
}

void check(const void* block, size_t size, uint64_t mark) {
  uint64_t first, last;
  std::memcpy(&first, block, sizeof first);
  std::memcpy(&last, static_cast<const char*>(block) + size - sizeof last, sizeof last);
  if (first == mark && last == mark) return;
  std::fprintf(stderr, "workload: a block of %zu bytes at %p was damaged\n", size, block);
  std::exit(4);
}

void report_memory(double since, size_t live) {
  std::printf("memory %.6f %zu %zu\n", seconds() - since, live, resident_bytes());
}

void report(uint64_t operations, double elapsed) {
  std::printf("operations: %llu\noperations_per_second: %.1f\n", static_cast<unsigned long long>(operations),
              static_cast<double>(operations) / elapsed);
}

}  // namespace memoir::bench
