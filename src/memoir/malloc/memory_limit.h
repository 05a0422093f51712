// SPDX-License-Identifier: Apache-2.0
//
// The limit that would kill the program: of its control groups (memory.max and memory.high of its own and
// those above it; version 1 too), of the machine, or set by hand. The malloc looks at it when it has grown by
// a share of what is left, on the thread that asks; far from the limit that is a comparison for each span.
//
//   from 85 %   a bounded part of what lies idle goes back at once, and nothing is kept ready
//   from 95 %   all that can go
#pragma once

#include <atomic>

#include "memoir/base/lock.h"
#include "memoir/base/units.h"

namespace memoir::malloc_ {

class MemoryLimit {
 public:
  static constexpr Size kNone = ~Size{0};
  /// A limit of the program's resident bytes, kNone: only those that the system has. Before all else.
  void set(Size by_hand) noexcept { by_hand_ = by_hand; }

  /// Whether somebody should look, now that the malloc has so many bytes in memory. Any thread.
  bool due(Size resident) const noexcept { return resident > look_at_.load(std::memory_order_relaxed); }
  /// Whether it was near when somebody looked last: then nothing is kept ready. Any thread.
  bool near() const noexcept { return near_.load(std::memory_order_relaxed); }

  /// What the tightest limit leaves.
  struct Room {
    Size limit = kNone, left = kNone;
    bool near() const noexcept { return limit != kNone && left < limit / 100 * 15; }
    bool very_near() const noexcept { return limit != kNone && left < limit / 100 * 5; }
  };
  /// Reads the limits and what is used of them; `resident`: of this malloc, where the system does not say.
  /// One thread at a time. Keeps errno.
  Room read(Size resident) noexcept;
  /// What was read, when the malloc had so much in memory: says when the next look is due.
  void looked(const Room& room, Size resident) noexcept;

  struct Figures {
    Size limit = kNone, left = kNone;  // when somebody looked last
    Size given_back = 0;               // for it, ever
  };
  Figures figures() const noexcept {
    return {limit_.load(std::memory_order_relaxed), left_.load(std::memory_order_relaxed),
            given_back_.load(std::memory_order_relaxed)};
  }
  void add_given_back(Size bytes) noexcept { given_back_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  static constexpr Size kFirstLook = 24 * kMiB;
  Size by_hand_ = kNone;
  std::atomic<Size> look_at_{kFirstLook};
  std::atomic<bool> near_{false};
  std::atomic<Size> limit_{kNone}, left_{kNone}, given_back_{0};
};

}  // namespace memoir::malloc_
