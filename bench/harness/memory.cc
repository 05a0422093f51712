// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "tree.h"

namespace memoir::bench {

namespace {

// Of the time that may go into looking: 1 % is promised, and the first look is free.
constexpr double kShare = 0.008;
constexpr size_t kMost = 4096;  // samples; then every other one goes, and the period doubles

double seconds_of(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

uint64_t field(const char* text, const char* name) {
  const char* found = std::strstr(text, name);
  unsigned long long kib = 0;
  if (found != nullptr) std::sscanf(found + std::strlen(name), "%llu", &kib);
  return kib << 10;
}

// Returns how many seconds the read lasted: all the while, also when a core was taken away in its midst,
// the process may wait for its own address space.
double add(pid_t process, MemorySample& sample) {
  char path[64], text[2048];
  std::snprintf(path, sizeof path, "/proc/%d/smaps_rollup", process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0.0;
  const double before = seconds_of(CLOCK_MONOTONIC);
  const ssize_t length = read(file, text, sizeof text - 1);
  const double held = seconds_of(CLOCK_MONOTONIC) - before;
  close(file);
  if (length <= 0) return held;
  text[length] = '\0';
  sample.resident += field(text, "\nRss:");
  sample.proportional += field(text, "\nPss:");
  sample.huge += field(text, "\nAnonHugePages:");
  sample.lazily_freed += field(text, "\nLazyFree:");
  sample.swapped += field(text, "\nSwap:");
  return held;
}

}  // namespace

uint64_t MemorySampler::printed() {
  struct stat about;
  if (fstat(STDOUT_FILENO, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  return static_cast<uint64_t>(about.st_size);
}

void MemorySampler::sample(pid_t root, double started, double now) {
  // around the reads processor time counts: a sampler that waits for a core holds nobody up
  const double before = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  double held = 0.0;
  MemorySample sample;
  sample.time = now - started;
  for (pid_t process : descendants(root)) held += add(process, sample);
  sample.printed = printed_ = printed();
  const double worked = seconds_of(CLOCK_THREAD_CPUTIME_ID) - before;
  held_ += held;
  // Not also a share of the time since the start: short runs would lose the ends of their phases for it.
  // One that came early adds to what is still to be waited. A phase that ends does not wait for what a
  // busy machine took from the last sample, or phases of a second would be missed there.
  const double after = seconds_of(CLOCK_MONOTONIC);
  next_ = std::max(next_, after) + std::max(period_, std::max(worked, held) / kShare);
  early_ = after + std::max(period_, worked / kShare);
  if (sample.resident == 0) return;  // between two processes
  samples_.push_back(sample);
  if (samples_.size() < kMost) return;
  for (size_t i = 0; i < kMost / 2; ++i) samples_[i] = samples_[2 * i];
  samples_.resize(kMost / 2);
  period_ *= 2.0;
}

void MemorySampler::report(FILE* out) const {
  std::fputc('[', out);
  const char* separator = "";
  for (const MemorySample& s : samples_) {
    std::fprintf(out,
                 "%s[%.4f, %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
                 separator, s.time, s.resident, s.proportional, s.huge, s.lazily_freed, s.swapped, s.printed);
    separator = ", ";
  }
  std::fputc(']', out);
}

}  // namespace memoir::bench
