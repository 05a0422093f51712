// SPDX-License-Identifier: Apache-2.0
#include "memoir/remember/slab/slab_upkeep.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

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
    else if (forks_.load(std::memory_order_relaxed) != 0) wanted_ = true;
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
    make_condition();
    // After those of ForkMutex, which a slab's set has made before: handlers run in the reverse order, so the
    // thread that is waited for here finds every mutex free.
    ::pthread_atfork([] { instance().stop(); }, [] { instance().go_on(); }, [] { instance().begin_anew(); });
  }

  void make_condition() noexcept {
    pthread_condattr_t attributes;
    ::pthread_condattr_init(&attributes);
    ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    ::pthread_cond_init(&changed_, &attributes);
    ::pthread_condattr_destroy(&attributes);
  }

  /// The caller has the mutex, and no fork() is under way: stop() alone joins a thread then.
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

  /// Before a fork(), of which there may be several at a time: no thread starts until the last is over.
  void stop() noexcept {
    pthread_t ended{};
    bool join = false;
    {
      const Hold hold(mutex_);
      forks_.fetch_add(1, std::memory_order_relaxed);
      stopping_.store(true, std::memory_order_relaxed);
      wanted_ = wanted_ || running_;
      ::pthread_cond_signal(&changed_);
      join = std::exchange(joinable_, false);
      ended = thread_;
    }
    if (join) ::pthread_join(ended, nullptr);
  }
  /// In the parent. What slabs hold is looked after again, also if nobody takes one any more.
  void go_on() noexcept {
    const Hold hold(mutex_);
    if (forks_.fetch_sub(1, std::memory_order_relaxed) != 1) return;
    stopping_.store(false, std::memory_order_relaxed);
    wished_.store(false, std::memory_order_relaxed);
    if (std::exchange(wanted_, false)) running_ = start();
    slab_upkeep_runs.store(running_, std::memory_order_relaxed);
  }
  /// In the child, which has this thread alone: the next that slabs hold starts one.
  void begin_anew() noexcept {
    mutex_ = PTHREAD_MUTEX_INITIALIZER;
    make_condition();
    forks_.store(0, std::memory_order_relaxed);
    stopping_.store(false, std::memory_order_relaxed);
    wished_.store(false, std::memory_order_relaxed);
    wanted_ = running_ = joinable_ = false;
    slab_upkeep_runs.store(false, std::memory_order_relaxed);
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
  std::atomic<bool> wished_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> forks_ = 0;  // under way
  bool wanted_ = false;         // by what waits for them to be over
  bool running_ = false;
  bool joinable_ = false;  // thread_ is one, and was not joined
  pthread_t thread_ = {};
};

}  // namespace

void wake_slab_upkeep() noexcept { Upkeep::instance().wake(); }

}  // namespace memoir
