// SPDX-License-Identifier: Apache-2.0
//
// Times operations of a few nanoseconds each. On x86 it counts the processor's own ticks, which costs a third
// of reading the system's clock; what an empty measurement takes is found out first and taken off. Some
// machines count in steps of 10 ns: the median is therefore taken over small groups, and only the tail over
// single operations.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace memoir {

class OperationTimer {
 public:
  OperationTimer() : first_(now()), first_time_(Clock::now()) {
    std::vector<std::uint64_t> empty(1001);
    for (std::uint64_t& ticks : empty) {
      const std::uint64_t before = now();
      ticks = now() - before;
    }
    std::nth_element(empty.begin(), empty.begin() + 500, empty.end());
    own_ = empty[500];
  }

  void begin() noexcept { began_ = now(); }
  /// Of `operations` (> 0) that were timed together.
  void end_of_group(std::uint64_t operations) {
    const std::uint64_t ticks = spent();
    ticks_ += ticks;
    grouped_ += operations;
    groups_.push_back(static_cast<float>(ticks) / static_cast<float>(operations));
  }
  void end_of_one() {
    singles_.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(spent(), ~std::uint32_t{0})));
  }

  std::uint64_t operations() const noexcept { return grouped_ + singles_.size(); }
  /// What was timed since the last call was one pass over the same operations.
  void end_of_pass() {
    if (grouped_ == passed_) return;
    passes_.push_back(static_cast<double>(ticks_) / static_cast<double>(grouped_ - passed_));
    passed_ = grouped_;
    ticks_ = 0;
  }

  /// Nanoseconds of one operation, over the groups of the median pass: others, and what they took from this
  /// process, do not count. These give 0 when there was nothing.
  double mean() { return quantile(passes_, 0.5); }
  double median() { return quantile(groups_, 0.5); }
  /// Nanoseconds that this part of the single operations took at most.
  double quantile(double part) { return quantile(singles_, part); }

 private:
  using Clock = std::chrono::steady_clock;

  static std::uint64_t now() noexcept {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);  // waits for what came before
#else
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
#endif
  }
  std::uint64_t spent() const noexcept {
    const std::uint64_t ticks = now() - began_;
    return ticks - std::min(ticks, own_);
  }
  template <class Values>
  double quantile(Values& values, double part) const {
    if (values.empty()) return 0;
    const auto at =
        values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return static_cast<double>(*at) * nanoseconds();
  }
  /// Nanoseconds per tick.
  double nanoseconds() const {
    const double ticks = static_cast<double>(now() - first_);
    const std::chrono::duration<double, std::nano> time = Clock::now() - first_time_;
    return ticks == 0 ? 1 : time.count() / ticks;
  }

  std::uint64_t first_;
  Clock::time_point first_time_;
  std::uint64_t own_ = 0;  // ticks of measuring nothing
  std::uint64_t began_ = 0;
  std::uint64_t ticks_ = 0;             // of the groups of this pass
  std::uint64_t grouped_ = 0;           // operations in all groups
  std::uint64_t passed_ = 0;            // of them, in the passes that ended
  std::vector<double> passes_;          // ticks per operation
  std::vector<float> groups_;           // ticks per operation
  std::vector<std::uint32_t> singles_;  // ticks
};

}  // namespace memoir
