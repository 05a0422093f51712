// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/background.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "memoir/malloc/blocks/store_barrier.h"
#include "memoir/malloc/foresight.h"
#include "memoir/malloc/malloc.h"
#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

namespace {

constexpr unsigned kIdleRounds = 30;  // after so many without work, until woken

Lock limit_lock, upkeep_lock;  // are taken in this order
Forever<Upkeep> upkeep_storage;
std::atomic<bool> started{false};
std::atomic<std::uint32_t> wakes{0};
std::atomic<bool> questions{false};                        // the last wake was for the model
constexpr std::uint64_t kLate = 10 * UpkeepRules::kRound;  // then it does not come
constexpr std::uint64_t kFirstTry = 100'000'000, kLastTry = 5'000'000'000;
std::atomic<std::uint64_t> last_round{0};     // when the background or a share last began one
std::atomic<std::uint64_t> next_try{0};       // to start the thread
std::atomic<std::uint64_t> between_tries{0};  // 0: it was not refused
std::atomic<std::uint64_t> next_share{0};

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
  stay_without_heap();  // the few blocks of the dynamic loader are the common heap's
  bool look = false;
  for (unsigned idle = 0, rounds = 0;;) {
    if (std::exchange(look, false)) keep_within_limit(0);
    foresight().begin(central().options.model.text);
    const std::uint32_t seen = wakes.load(std::memory_order_acquire);
    const bool answered = foresight().answer();
    if (!sleep_for_a_round(seen, idle < kIdleRounds ? UpkeepRules::kRound : 0)) break;
    if (wakes.load(std::memory_order_relaxed) != seen) idle = 0;
    const LockGuard guard(upkeep_lock);
    last_round.store(now(), std::memory_order_relaxed);
    background_calls.store(0, std::memory_order_relaxed);
    between_tries.store(0, std::memory_order_relaxed);
    central().shared_upkeep.store(false, std::memory_order_relaxed);
    upkeep_storage.value.run(false);
    // Others grow as well, and what was near may no longer be.
    if (const unsigned every = central().limit.near() ? 1 : 10; ++rounds % every == 0) look = true;
    if (answered || upkeep_storage.value.busy()) {
      idle = 0;
      background_wanted.store(true, std::memory_order_relaxed);
    } else if (++idle >= kIdleRounds) {
      background_wanted.store(false, std::memory_order_relaxed);
    }
  }
  started.store(false, std::memory_order_release);  // it may not sleep: the program's threads do its work
  next_try.store(~std::uint64_t{0}, std::memory_order_relaxed);
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

namespace {

void try_to_start(std::uint64_t at) noexcept {
  if (at < next_try.load(std::memory_order_relaxed) || started.exchange(true, std::memory_order_acq_rel))
    return;
  if (start_background()) {
    last_round.store(at, std::memory_order_relaxed);
    return;
  }
  const std::uint64_t before = between_tries.load(std::memory_order_relaxed);
  const std::uint64_t pause = before == 0 ? kFirstTry : before * 2 < kLastTry ? before * 2 : kLastTry;
  between_tries.store(pause, std::memory_order_relaxed);
  next_try.store(at + pause, std::memory_order_relaxed);
  started.store(false, std::memory_order_release);
}

/// A program that frees much may then not come here for long: what it will hardly need goes while it frees.
void give_back_early() noexcept {
  constexpr Size kReady = 8 * kMiB, kStep = 2 * kMiB, kMost = 8 * kMiB;
  LifetimeHeap::Figures figures;
  {
    const LockGuard guard(central().lock);
    figures = central().heap.figures();
  }
  const Size ready = std::max(kReady, figures.resident / 4);
  if (!central().options.release || figures.free_resident < ready + kStep || !upkeep_lock.try_lock()) return;
  upkeep_storage.value.release(std::min(figures.free_resident - ready, kMost));
  upkeep_lock.unlock();
}

/// What the background would have done meanwhile, a part of it; at most a tenth of a thread's time.
void do_a_share(std::uint64_t at) noexcept {
  constexpr std::uint64_t kMost = UpkeepRules::kWindow, kPause = 9;
  static unsigned idle = 0;  // under the lock
  static bool unfinished = false;
  if (at < next_share.load(std::memory_order_relaxed) || !upkeep_lock.try_lock()) return;
  const std::uint64_t missed = (at - last_round.load(std::memory_order_relaxed)) / UpkeepRules::kRound;
  if (missed != 0 || unfinished) {
    last_round.store(at, std::memory_order_relaxed);
    unfinished = !upkeep_storage.value.share(static_cast<unsigned>(missed == 0      ? 1
                                                                   : missed < kMost ? missed
                                                                                    : kMost));
    idle = upkeep_storage.value.busy() ? 0 : idle + static_cast<unsigned>(missed);
    if (idle >= kIdleRounds) {
      idle = 0;
      central().shared_upkeep.store(false, std::memory_order_relaxed);
      background_wanted.store(false, std::memory_order_relaxed);
    }
    const std::uint64_t end = now();
    next_share.store(end + kPause * (end - at), std::memory_order_relaxed);
  }
  upkeep_lock.unlock();
}

}  // namespace

void wake_background_slowly() noexcept {
  const int kept = errno;
  const std::uint64_t at = now();
  const bool wanted = background_wanted.exchange(true, std::memory_order_relaxed);
  background_calls.store(0, std::memory_order_relaxed);
  if (central().options.background) try_to_start(at);
  const bool there = started.load(std::memory_order_relaxed);
  if (there && !wanted) {
    last_round.store(at, std::memory_order_relaxed);
    wakes.fetch_add(1, std::memory_order_release);
    wake_all(&wakes);
  } else if (!there || at > last_round.load(std::memory_order_relaxed) + kLate) {
    // Refused, not wanted; or it does not come, as in a process that was cloned without its threads.
    central().shared_upkeep.store(true, std::memory_order_relaxed);
  }
  if (central().shared_upkeep.load(std::memory_order_relaxed)) {
    do_a_share(at);
    give_back_early();
  }
  errno = kept;
}

const char* background_missing() noexcept {
  if (!central().options.background) return "background=0";
  if (between_tries.load(std::memory_order_relaxed) != 0) return "the system refuses one";
  return central().shared_upkeep.load(std::memory_order_relaxed) ? "it does not run" : nullptr;
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
  if (!central().ready()) return false;
  // In a process that was cloned without its threads the lock may never be free.
  constexpr int kMostWaits = 5000;
  if (forking_thread.load(std::memory_order_relaxed) == current_thread()) upkeep_lock.lock();
  else {
    for (int waits = 0; !upkeep_lock.try_lock(); ++waits) {
      if (waits == kMostWaits) return false;
      pass_time(1'000'000);
    }
  }
  const Size before = upkeep_storage.value.figures().given_back;
  // Twice: what the first round empties becomes free slots for the second.
  upkeep_storage.value.run(true);
  upkeep_storage.value.run(true);
  const bool went = upkeep_storage.value.figures().given_back != before;
  upkeep_lock.unlock();
  return went;
}

namespace {

/// Whether it is time for all that can go: that takes milliseconds, and a program may go on asking for more
/// than there is. It is when spans ended since, and else for a small share of the time.
class Thorough {
 public:
  bool due() const noexcept {
    return now() >= next_.load(std::memory_order_relaxed) ||
           central().spans_ended() - ended_.load(std::memory_order_relaxed) >= kSpans;
  }
  void took(std::uint64_t began) noexcept {
    const std::uint64_t end = now();
    next_.store(end + kPause * (end - began), std::memory_order_relaxed);
    ended_.store(central().spans_ended(), std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kPause = 16, kSpans = 64;
  std::atomic<std::uint64_t> next_{0}, ended_{0};
};
constinit Thorough when_refused, when_near;

}  // namespace

void keep_within_limit(Size more) noexcept {
  if (!limit_lock.try_lock()) return;
  const int kept = errno;
  Central& all = central();
  all.limit_due.store(false, std::memory_order_relaxed);
  MemoryLimit::Room room = all.limit.read(all.in_memory());
  const Size left = room.left;
  room.left -= std::min(room.left, more);
  if (room.near() && all.options.release) {
    const Size wanted = more + room.limit / 64;
    Size went = 0;
    if (upkeep_lock.try_lock()) {
      went = upkeep_storage.value.release(wanted);
      upkeep_lock.unlock();
    }
    if (went < wanted && room.very_near() && when_near.due()) {
      const std::uint64_t began = now();
      const Size before = upkeep_figures().given_back;
      trim();
      went += upkeep_figures().given_back - before;
      when_near.took(began);
    }
    all.limit.add_given_back(went);
    room.left = std::min(room.limit, left + went);
    room.left -= std::min(room.left, more);
  }
  all.count_in_memory();
  all.limit.looked(room, all.in_memory() + more);
  errno = kept;
  limit_lock.unlock();
}

bool make_room(bool thoroughly) noexcept {
  Size went = central().large.purge_addresses() + Upkeep::give_addresses_back();
  if (!thoroughly || !when_refused.due()) return went != 0;
  const std::uint64_t began = now();
  trim();
  went += central().large.purge_addresses() + Upkeep::give_addresses_back();
  when_refused.took(began);
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
  foresight().wait_for_loading();
  limit_lock.lock();
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
  common_heap().lock().lock();
  sample_heap().lock().lock();
  central().lock.lock();
  central().large.lock().lock();
  central().sampler().lock().lock();
  central().live_samples.lock().lock();
  foresight().prepare_fork();
  forking_thread.store(current_thread(), std::memory_order_relaxed);
}

void after_fork(bool child) noexcept {
  forking_thread.store(0, std::memory_order_relaxed);
  foresight().after_fork(child);
  central().live_samples.lock().unlock();
  central().sampler().lock().unlock();
  central().large.lock().unlock();
  central().lock.unlock();
  sample_heap().lock().unlock();
  common_heap().lock().unlock();
  for_each_heap([&](ThreadHeap& heap) {
    if (&heap != this_heap) heap.resume();
    heap.lock().unlock();
  });
  registry().lock().unlock();
  upkeep_lock.unlock();
  limit_lock.unlock();
  if (!child) return;
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
  next_try.store(0, std::memory_order_relaxed);
  between_tries.store(0, std::memory_order_relaxed);
  central().shared_upkeep.store(false, std::memory_order_relaxed);
  background_wanted.store(false, std::memory_order_relaxed);
}

}  // namespace memoir::malloc_
