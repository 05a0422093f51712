// SPDX-License-Identifier: Apache-2.0
//
// What remembering a callable costs, against what its passes take, so that a remembered callable is never
// much slower than a plain one, whatever its calls do:
//
//   debt       grows by what was spent on learning (recording, planning, deriving, aligning) and on looking
//              at calls; shrinks by kShare of what passes took
//   no more learning    from a debt of kAhead passes on, until it is paid: a call that has a plan follows it,
//                       any other runs plain
//   no more looks       when looks alone are more than kShare of the passes: the next 2, 4, 8 ... calls run
//                       plain; every call after such a pause that is cheap again halves it
//   caution    learning counts double, four times, ... while what was learned proves to be of no use
//
// Times are nanoseconds; the caller has the clock. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "memoir/base/fork_mutex.h"

namespace memoir {

class Ledger {
 public:
  using Nanoseconds = std::int64_t;
  static constexpr double kShare = 0.03;
  static constexpr int kAhead = 4;  // passes whose time may be spent in advance
  static constexpr int kMostCaution = 64;

  /// False: this call runs plain, and nobody looks at it or tells of it.
  bool looks_at_call() noexcept {
    if (left_.load(std::memory_order_relaxed) <= 0) [[likely]]
      return true;
    return left_.fetch_sub(1, std::memory_order_relaxed) <= 0;
  }
  bool may_learn() const noexcept { return may_learn_.load(std::memory_order_relaxed); }

  /// That was spent on learning, within a call or next to it.
  void learned(Nanoseconds spent) noexcept;
  /// A call that was looked at has ended: its pass, and what was spent on it besides that and learning.
  void called(Nanoseconds looks, Nanoseconds pass) noexcept;
  /// A plan that is new was followed to the end in step, or was not.
  void proved(bool useful) noexcept;

  struct Figures {
    Nanoseconds learning = 0, looks = 0, passes = 0;
    std::uint64_t skipped = 0;  // calls that nobody looked at; `passes` has an estimate of their time
  };
  Figures figures() const noexcept;

 private:
  void end_pause() noexcept;  // the caller has the lock

  std::atomic<std::int64_t> left_ = 0;  // calls until the pause ends; below 0 when several threads call
  std::atomic<bool> may_learn_ = true;
  mutable ForkMutex mutex_;  // guards all below
  Figures figures_;
  double debt_ = 0, mean_ = 0;  // mean_: of the passes, the latest count most
  int caution_ = 1;
  unsigned useful_ = 0, useless_ = 0;  // since learning began again
  std::int64_t pause_ = 0;             // length of the last pause, halved by each call that was cheap
  bool paused_ = false;                // a pause has begun and was not accounted for
};

}  // namespace memoir
