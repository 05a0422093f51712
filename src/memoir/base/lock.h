// SPDX-License-Identifier: Apache-2.0
//
// A lock of four bytes that may be taken before the C library is set up and set free by a forked child.
#pragma once

#include <atomic>
#include <cstdint>

namespace memoir {

class Lock {
 public:
  void lock() noexcept {
    std::uint32_t free = 0;
    if (!state_.compare_exchange_strong(free, 1, std::memory_order_acquire)) lock_slowly();
  }
  bool try_lock() noexcept {
    std::uint32_t free = 0;
    return state_.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  void unlock() noexcept {
    if (state_.exchange(0, std::memory_order_release) == 2) wake();
  }

 private:
  void lock_slowly() noexcept;
  void wake() noexcept;

  std::atomic<std::uint32_t> state_{0};  // 0 free, 1 taken, 2 taken and somebody may wait
};

class LockGuard {
 public:
  explicit LockGuard(Lock& lock) noexcept : lock_(lock) { lock_.lock(); }
  ~LockGuard() { lock_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& lock_;
};

/// Sleeps while `*word` is `value`, at most that long (0: for ever) or until wake_all(word).
void sleep_on(std::atomic<std::uint32_t>* word, std::uint32_t value, std::uint64_t nanoseconds) noexcept;
void wake_all(std::atomic<std::uint32_t>* word) noexcept;

}  // namespace memoir
