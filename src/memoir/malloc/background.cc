// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/background.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cerrno>

#include "memoir/malloc/blocks/store_barrier.h"
#include "memoir/malloc/foresight.h"
#include "memoir/malloc/malloc.h"
#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

namespace {

constexpr unsigned kIdleRounds = 30;  // after so many without work, until woken

Lock upkeep_lock;
Forever<Upkeep> upkeep_storage;
std::atomic<bool> started{false};
std::atomic<std::uint32_t> wakes{0};
std::atomic<bool> questions{false};  // the last wake was for the model

std::uint64_t now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

/// Sleeps that long (0: until woken). Who only has a question for the model does not end a round: rounds are
/// what time is measured in.
/// False: it may not sleep.
bool sleep_for_a_round(std::uint32_t seen, std::uint64_t nanoseconds) noexcept {
  if (nanoseconds == 0) return sleep_on(&wakes, seen, 0);
  const std::uint64_t end = now() + nanoseconds;
  for (std::uint64_t at = end - nanoseconds; at < end; at = now()) {
    if (!sleep_on(&wakes, seen, end - at)) return false;
    const std::uint32_t woken = wakes.load(std::memory_order_acquire);
    if (woken == seen || !questions.exchange(false, std::memory_order_acq_rel)) return true;
    seen = woken;
    foresight().answer();
  }
  return true;
}

void* run_background(void*) noexcept {
  for (unsigned idle = 0;;) {
    foresight().begin(central().options.model.text);
    const std::uint32_t seen = wakes.load(std::memory_order_acquire);
    const bool answered = foresight().answer();
    if (!sleep_for_a_round(seen, idle < kIdleRounds ? UpkeepRules::kRound : 0)) break;
    if (wakes.load(std::memory_order_relaxed) != seen) idle = 0;
    const LockGuard guard(upkeep_lock);
    upkeep_storage.value.run(false);
    if (answered || upkeep_storage.value.busy()) {
      idle = 0;
      background_wanted.store(true, std::memory_order_relaxed);
    } else if (++idle >= kIdleRounds) {
      background_wanted.store(false, std::memory_order_relaxed);
    }
  }
  return nullptr;
}

/// Whether the program has started a thread itself, which called malloc.
bool threads_were_seen() noexcept { return registry().end() > kFirstThreadHeap + 1; }

bool start_background() noexcept {
  if (!host_control::may_start_thread(threads_were_seen())) return false;
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  pthread_attr_t attributes;
  pthread_t thread;
  bool done = false;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * kKiB);
    done = pthread_create(&thread, &attributes, run_background, nullptr) == 0;
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return done;
}

}  // namespace

void wake_background_slowly() noexcept {
  const int kept = errno;
  background_wanted.store(true, std::memory_order_relaxed);
  if (!started.exchange(true, std::memory_order_acq_rel)) {
    if (!start_background()) started.store(false, std::memory_order_relaxed);  // tried again at the next wish
  } else {
    wakes.fetch_add(1, std::memory_order_release);
    wake_all(&wakes);
  }
  errno = kept;
}

void wake_to_answer() noexcept {
  if (!background_wanted.load(std::memory_order_relaxed)) return wake_background_slowly();
  const int kept = errno;
  questions.store(true, std::memory_order_release);
  wakes.fetch_add(1, std::memory_order_release);
  wake_all(&wakes);
  errno = kept;
}

bool run_upkeep_now() noexcept {
  if (!central().ready() || forking_thread.load(std::memory_order_relaxed) == current_thread()) return false;
  const LockGuard guard(upkeep_lock);
  const Size before = upkeep_storage.value.figures().given_back;
  // Twice: what the first round empties becomes free slots for the second.
  upkeep_storage.value.run(true);
  upkeep_storage.value.run(true);
  return upkeep_storage.value.figures().given_back != before;
}

bool make_room(bool thoroughly) noexcept {
  // All that can be takes milliseconds, and a program may go on asking for more than there is: it is done
  // when spans ended since, and else for a small share of the time.
  constexpr std::uint64_t kPause = 16, kSpans = 64;
  static std::atomic<std::uint64_t> next{0}, ended{0};
  Size went = central().large.purge_addresses() + Upkeep::give_addresses_back();
  if (!thoroughly) return went != 0;
  const std::uint64_t began = now(), spans = central().spans_ended();
  if (began < next.load(std::memory_order_relaxed) && spans - ended.load(std::memory_order_relaxed) < kSpans)
    return went != 0;
  trim();
  went += central().large.purge_addresses() + Upkeep::give_addresses_back();
  const std::uint64_t end = now();
  next.store(end + kPause * (end - began), std::memory_order_relaxed);
  ended.store(central().spans_ended(), std::memory_order_relaxed);
  return went != 0;
}

Upkeep::Figures upkeep_figures() noexcept {
  const LockGuard guard(upkeep_lock);
  return upkeep_storage.value.figures();
}

// ----------------------------------------------------------------------------------------------------------
// fork

namespace {

template <class Visit>
void for_each_heap(Visit visit) noexcept {
  for (HeapId id = kFirstThreadHeap; id < registry().end(); ++id) {
    if (ThreadHeap* const heap = registry().find(id); heap != nullptr) visit(*heap);
  }
}

}  // namespace

void prepare_fork() noexcept {
  upkeep_lock.lock();
  registry().lock().lock();
  bool others = false;
  for_each_heap([&](ThreadHeap& heap) {
    heap.lock().lock();
    if (&heap == this_heap) return;
    heap.divert();
    others = others || !heap.idle;
  });
  // The child gets lists that nobody is in the middle of changing. A thread that stays inside for long (it
  // was preempted there) may leave a list the child cannot use: its heap is not taken over.
  if (others) until_stores_are_seen(nullptr);
  for_each_heap([](ThreadHeap& heap) {
    if (&heap != this_heap) heap.quiet = heap.wait_outside();
  });
  common_heap.lock().lock();
  sample_heap.lock().lock();
  central().lock.lock();
  central().large.lock().lock();
  central().sampler.lock().lock();
  central().live_samples.lock().lock();
  foresight().lock().lock();
  forking_thread.store(current_thread(), std::memory_order_relaxed);
}

void after_fork(bool child) noexcept {
  forking_thread.store(0, std::memory_order_relaxed);
  foresight().lock().unlock();
  central().live_samples.lock().unlock();
  central().sampler.lock().unlock();
  central().large.lock().unlock();
  central().lock.unlock();
  sample_heap.lock().unlock();
  common_heap.lock().unlock();
  for_each_heap([&](ThreadHeap& heap) {
    if (&heap != this_heap) heap.resume();
    heap.lock().unlock();
  });
  registry().lock().unlock();
  upkeep_lock.unlock();
  if (!child) return;
  foresight().after_fork();
  forget_barriers();
  // The other threads are not there: their heaps wait for new ones.
  for_each_heap([](ThreadHeap& heap) {
    if (&heap == this_heap || heap.idle || !heap.quiet) return;
    {
      const LockGuard guard(heap.lock());
      heap.busy.store(0, std::memory_order_relaxed);
      heap.token.store(kNoToken, std::memory_order_relaxed);
      heap.give_back();
    }
    registry().put_back(&heap);
  });
  started.store(false, std::memory_order_relaxed);
  background_wanted.store(false, std::memory_order_relaxed);
}

}  // namespace memoir::malloc_
