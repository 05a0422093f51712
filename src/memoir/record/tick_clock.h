// SPDX-License-Identifier: Apache-2.0
//
// The time of events, in ticks of 1 ms, for the price of one load: `memoir record` counts them up in a page
// that all recorded processes map. Tick 0 is when the first of them begins. Without such a page, or when
// nobody counts any more, the kernel's coarse clock is read instead (5 ns, and steps of up to 4 ms). Ticks
// never go back.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace memoir::record {

/// The page, as `memoir record` makes it. Numbers of the machine's own byte order: it lives no longer than a
/// run.
struct SharedClock {
  static constexpr std::uint64_t kMagic = 0x314b4349544d454d;  // "MEMTICK1"
  std::uint64_t magic;
  std::atomic<std::uint64_t> base;     // CLOCK_MONOTONIC at tick 0, nanoseconds; 0: no program has begun
  std::atomic<std::uint64_t> start;    // nanoseconds since 1970 at tick 0
  std::atomic<std::uint64_t> ticks;    // now
  std::atomic<std::uint32_t> refused;  // processes that could not create a trace
  std::atomic<std::uint32_t> why;      // an errno of those
};

class TickClock {
 public:
  static constexpr std::uint32_t kTick = 1'000'000;  // nanoseconds

  /// Maps the page at `path`; without one (nullptr, or it is none) tick 0 is now. Not thread-safe.
  void start(const char* path) noexcept;

  std::uint64_t now() const noexcept {
    const SharedClock* const shared = shared_.load(std::memory_order_relaxed);
    if (shared != nullptr) [[likely]]
      return shared->ticks.load(std::memory_order_relaxed);
    return own();
  }
  /// This process has no trace, for that errno: `memoir record` says so, and the program's own output stays
  /// the program's. False when nobody is there to say it.
  bool refuse(int why) const noexcept;
  /// Now and then: whether somebody still counts.
  void check() noexcept {
    const SharedClock* const shared = shared_.load(std::memory_order_relaxed);
    if (shared != nullptr && own() > shared->ticks.load(std::memory_order_relaxed) + kLate)
      shared_.store(nullptr, std::memory_order_relaxed);
  }
  TickClock() noexcept = default;
  TickClock& operator=(const TickClock& other) noexcept {
    shared_.store(other.shared_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    writable_ = other.writable_;
    base_ = other.base_;
    start_ = other.start_;
    return *this;
  }
  std::uint64_t start_of_day() const noexcept { return start_; }

 private:
  static constexpr std::uint64_t kLate = 1000;  // ticks

  std::uint64_t own() const noexcept {
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const auto nanoseconds =
        static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
    return nanoseconds > base_ ? (nanoseconds - base_) / kTick : 0;
  }

  std::atomic<const SharedClock*> shared_{nullptr};
  SharedClock* writable_ = nullptr;
  std::uint64_t base_ = 0, start_ = 0;
};

}  // namespace memoir::record
