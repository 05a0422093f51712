// SPDX-License-Identifier: Apache-2.0
//
// A mutex that a child of fork() finds free. fork() copies locks as they are, but only the thread that calls
// it: a lock that another thread holds at that moment would never be free again in the child.
//
//   before    the forking thread takes every ForkMutex of the process; when one is held, it lets go of all
//             and tries again (so no order of locks matters)
//   after     parent and child let go of all; in the child each owner is told, to give up what threads that
//             are gone had begun
#pragma once

#include <cstdint>
#include <mutex>

namespace memoir {

class ForkMutex {
 public:
  /// `in_child(owner)` runs in the child of every fork(), with no lock held and no other thread there.
  using InChild = void (*)(void* owner) noexcept;
  explicit ForkMutex(InChild in_child = nullptr, void* owner = nullptr) noexcept;
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() noexcept { mutex_.lock(); }
  void unlock() noexcept { mutex_.unlock(); }
  bool try_lock() noexcept { return mutex_.try_lock(); }

 private:
  friend class ForkMutexes;

  std::mutex mutex_;
  InChild in_child_;
  void* owner_;
  ForkMutex* previous_ = nullptr;  // in the list of all
  ForkMutex* next_ = nullptr;
};

/// How many times this process was forked from another one since it was started: what carries an older number
/// was begun by a thread that may be gone.
std::uint32_t fork_generation() noexcept;

}  // namespace memoir
