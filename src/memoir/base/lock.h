// SPDX-License-Identifier: Apache-2.0
//
// A lock of four bytes that may be taken before the C library is set up and set free by a forked child.
#pragma once

#include <atomic>
#include <cstdint>

namespace memoir {

class Lock;

/// The thread that forks, from when it holds all locks until it lets go of them; else 0. What handlers of
/// others allocate on it meanwhile finds its locks taken by the thread itself, which it is lent then: nobody
/// else is at work.
inline constinit std::atomic<std::uintptr_t> forking_thread{0};
bool return_lent(const Lock* lock) noexcept;
inline std::uintptr_t current_thread() noexcept {
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
}

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
    if (forking_thread.load(std::memory_order_relaxed) != 0 && return_lent(this)) [[unlikely]]
      return;
    if (state_.exchange(0, std::memory_order_release) == 2) wake();
  }
  /// Whether somebody waits for it, or did since it was taken.
  bool is_wanted() const noexcept { return state_.load(std::memory_order_acquire) == 2; }

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

/// Sleeps while `*word` is `value`, at most that long (0: for ever) or until wake_all(word). False: the
/// system refuses to let us sleep.
bool sleep_on(std::atomic<std::uint32_t>* word, std::uint32_t value, std::uint64_t nanoseconds) noexcept;
void wake_all(std::atomic<std::uint32_t>* word) noexcept;
/// Sleeps that long, or not at all where the system refuses that.
void pass_time(std::uint64_t nanoseconds) noexcept;

}  // namespace memoir
