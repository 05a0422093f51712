// SPDX-License-Identifier: Apache-2.0
//
// Times operations of a few nanoseconds each. On x86 it counts the processor's own ticks, which costs a third of
// reading the system's clock; what an empty measurement takes is found out first and taken off.
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
  void end_of(std::uint64_t operations) noexcept {
    const std::uint64_t ticks = now() - began_;
    stretches_ += ticks - std::min(ticks, own_);
    stretched_ += operations;
  }
  void end_of_one() {
    const std::uint64_t ticks = now() - began_;
    singles_.push_back(
        static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks - std::min(ticks, own_), ~0u)));
  }

  std::uint64_t operations() const noexcept { return stretched_ + singles_.size(); }
  /// Nanoseconds of one operation, over the stretches; 0 when there were none.
  double mean() const {
    return stretched_ == 0
               ? 0
               : static_cast<double>(stretches_) * nanoseconds() / static_cast<double>(stretched_);
  }
  /// Nanoseconds that this part of the single operations took at most; 0 when there were none.
  double quantile(double part) {
    if (singles_.empty()) return 0;
    const auto at =
        singles_.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(singles_.size() - 1));
    std::nth_element(singles_.begin(), at, singles_.end());
    return *at * nanoseconds();
  }

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
  std::uint64_t stretches_ = 0;         // ticks
  std::uint64_t stretched_ = 0;         // operations in them
  std::vector<std::uint32_t> singles_;  // ticks
};

}  // namespace memoir
