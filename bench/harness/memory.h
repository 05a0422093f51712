// SPDX-License-Identifier: Apache-2.0
// The memory of a process tree over time, looked at from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace memoir::bench {

// Bytes, summed over the tree; seconds since the command's start.
struct MemorySample {
  double time = 0.0;
  uint64_t resident = 0, proportional = 0, huge = 0, lazily_freed = 0, swapped = 0;
  uint64_t printed = 0;  // bytes that the command had written to standard output
};

// Samples at most every `period` seconds, and never for more than a hundredth of the time: while smaps_rollup
// is read, the process that it looks at cannot map or unmap memory. When the command has printed, which may
// end a phase, the next sample may come early; the one after it comes the later. Keeps so few samples that
// its own size stays small.
class MemorySampler {
 public:
  explicit MemorySampler(double period) : period_(period) {}

  bool active() const { return period_ > 0.0; }
  double next() const { return next_; }
  bool wants(double now) const { return now >= next_ || (now >= early_ && printed() > printed_); }

  double held() const { return held_; }  // seconds in which it may have held up the tree

  void sample(pid_t root, double started, double now);
  void report(FILE* out) const;  // a JSON array of arrays

 private:
  static uint64_t printed();  // bytes in the file that the command's standard output is; 0 for anything else

  double period_;
  double next_ = 0.0, early_ = 0.0;
  uint64_t printed_ = 0;
  double held_ = 0.0;
  std::vector<MemorySample> samples_;
};

}  // namespace memoir::bench
