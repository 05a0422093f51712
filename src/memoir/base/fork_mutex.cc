// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/fork_mutex.h"

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <new>

namespace memoir {

namespace {
std::atomic<std::uint32_t> g_generation{0};
}

/// All of the process.
class ForkMutexes {
 public:
  static ForkMutexes& instance() noexcept {
    alignas(ForkMutexes) static std::byte storage[sizeof(ForkMutexes)];  // outlives every static object
    static ForkMutexes* const all = new (storage) ForkMutexes;
    return *all;
  }

  void add(ForkMutex& mutex) noexcept {
    const std::lock_guard lock(mutex_);
    mutex.next_ = first_;
    if (first_ != nullptr) first_->previous_ = &mutex;
    first_ = &mutex;
  }
  void remove(ForkMutex& mutex) noexcept {
    const std::lock_guard lock(mutex_);
    (mutex.previous_ == nullptr ? first_ : mutex.previous_->next_) = mutex.next_;
    if (mutex.next_ != nullptr) mutex.next_->previous_ = mutex.previous_;
  }

 private:
  ForkMutexes() noexcept {
    ::pthread_atfork([] { instance().take_all(); }, [] { instance().let_go(); },
                     [] { instance().in_child(); });
  }

  void take_all() noexcept {
    for (;;) {
      mutex_.lock();
      ForkMutex* held = first_;
      while (held != nullptr && held->mutex_.try_lock()) held = held->next_;
      if (held == nullptr) return;
      for (ForkMutex* taken = first_; taken != held; taken = taken->next_) taken->mutex_.unlock();
      mutex_.unlock();
      const timespec pause{0, 20'000};
      ::nanosleep(&pause, nullptr);
    }
  }
  void let_go() noexcept {
    for (ForkMutex* mutex = first_; mutex != nullptr; mutex = mutex->next_) mutex->mutex_.unlock();
    mutex_.unlock();
  }
  void in_child() noexcept {
    g_generation.fetch_add(1, std::memory_order_relaxed);
    let_go();
    for (ForkMutex* mutex = first_; mutex != nullptr; mutex = mutex->next_) {
      if (mutex->in_child_ != nullptr) mutex->in_child_(mutex->owner_);
    }
  }

  std::mutex mutex_;  // guards the list
  ForkMutex* first_ = nullptr;
};

ForkMutex::ForkMutex(InChild in_child, void* owner) noexcept : in_child_(in_child), owner_(owner) {
  ForkMutexes::instance().add(*this);
}

ForkMutex::~ForkMutex() { ForkMutexes::instance().remove(*this); }

std::uint32_t fork_generation() noexcept { return g_generation.load(std::memory_order_relaxed); }

}  // namespace memoir
