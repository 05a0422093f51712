// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/slab_upkeep.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>

#include "memoir/remember/slab/slab_set.h"

namespace memoir {

namespace {

constexpr long kRound = 500, kShortRound = 100;  // milliseconds between two looks, and after a wish for one

class Upkeep {
 public:
  static Upkeep& instance() noexcept {
    alignas(Upkeep) static std::byte storage[sizeof(Upkeep)];  // outlives every slab
    static Upkeep* const upkeep = new (storage) Upkeep;
    return *upkeep;
  }

  void wake() noexcept {
    if (wished_.exchange(true, std::memory_order_acq_rel)) return;
    const Hold hold(mutex_);
    if (running_) ::pthread_cond_signal(&changed_);
    else running_ = start();
    slab_upkeep_runs.store(running_, std::memory_order_relaxed);
    if (!running_) wished_.store(false, std::memory_order_relaxed);
  }

 private:
  /// std::lock_guard of a mutex that a condition can be waited for with.
  class Hold {
   public:
    explicit Hold(pthread_mutex_t& mutex) noexcept : mutex_(mutex) { ::pthread_mutex_lock(&mutex_); }
    ~Hold() { ::pthread_mutex_unlock(&mutex_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    pthread_mutex_t& mutex_;
  };

  Upkeep() noexcept {
    pthread_condattr_t attributes;
    ::pthread_condattr_init(&attributes);
    ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    ::pthread_cond_init(&changed_, &attributes);
    ::pthread_condattr_destroy(&attributes);
    // After those of ForkMutex, which a slab's set has made before: handlers run in the reverse order, so the
    // thread that is waited for here finds every mutex free.
    ::pthread_atfork([] { instance().stop(); }, [] { instance().go_on(); }, [] { instance().go_on(); });
  }

  bool start() noexcept {
    sigset_t all, before;
    sigfillset(&all);
    if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    pthread_attr_t attributes;
    bool started = false;
    if (::pthread_attr_init(&attributes) == 0) {
      ::pthread_attr_setstacksize(&attributes, 256 * kKiB);
      if (joinable_) ::pthread_join(thread_, nullptr);  // it has ended
      joinable_ = started = ::pthread_create(&thread_, &attributes, &run, nullptr) == 0;
      ::pthread_attr_destroy(&attributes);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  static void* run(void*) noexcept {
    instance().look_after_slabs();
    return nullptr;
  }

  void look_after_slabs() noexcept {
    for (bool holding = true;;) {
      {
        const Hold hold(mutex_);
        if (stopping_ || (!holding && !wished_.load(std::memory_order_relaxed))) {
          running_ = false;
          slab_upkeep_runs.store(false, std::memory_order_relaxed);
          return;
        }
        wait(kRound, true);
        if (wished_.load(std::memory_order_relaxed)) wait(kShortRound, false);
        if (stopping_) continue;
        wished_.store(false, std::memory_order_release);
      }
      holding = SlabSet::look_after_all(stopping_);
    }
  }

  /// The caller has the mutex. Until the time is over, the thread is to stop, or there is a wish
  /// that ends it.
  void wait(long milliseconds, bool wishes_end_it) noexcept {
    timespec end{};
    ::clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += milliseconds * 1'000'000;
    end.tv_sec += end.tv_nsec / 1'000'000'000;
    end.tv_nsec %= 1'000'000'000;
    while (!stopping_ && !(wishes_end_it && wished_.load(std::memory_order_relaxed)) &&
           ::pthread_cond_timedwait(&changed_, &mutex_, &end) != ETIMEDOUT) {
    }
  }

  void stop() noexcept {
    ::pthread_mutex_lock(&mutex_);
    stopping_ = true;
    ::pthread_cond_signal(&changed_);
    ::pthread_mutex_unlock(&mutex_);
    if (joinable_) ::pthread_join(thread_, nullptr);
    joinable_ = false;
  }
  /// Started again by the next that slabs hold, or by who waited for a fork().
  void go_on() noexcept {
    stopping_ = false;
    wished_.store(false, std::memory_order_relaxed);
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
  std::atomic<bool> wished_ = false;
  std::atomic<bool> stopping_ = false;
  bool running_ = false;
  bool joinable_ = false;  // thread_ is one, and was not joined
  pthread_t thread_ = {};
};

}  // namespace

void wake_slab_upkeep() noexcept { Upkeep::instance().wake(); }

}  // namespace memoir
