// SPDX-License-Identifier: Apache-2.0
//
// How much of a slab its latest passes used, at most: what it need not keep is what no pass of the last
// seconds used, or none of the last passes.
//
//   passes   8   2   2   6   3   1      remembered   8   6   3   1
//
// A pass that used less than a later one decides nothing any more, so each of these is smaller than the last.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir {

class RecentUse {
 public:
  using Time = std::int64_t;  // milliseconds
  static constexpr Time kKept = 4000, kKeptAtLeast = 100;
  static constexpr std::uint64_t kPasses = 64;

  void used(Size size, Time now) noexcept {
    ++passes_;
    while (count_ > 0 && uses_[count_ - 1].size <= size) --count_;
    if (count_ == kMost) --count_;  // without room it counts as the one before it, which was larger
    else uses_[count_].size = size;
    uses_[count_].time = now;
    uses_[count_].pass = passes_;
    ++count_;
  }
  /// Bytes that the passes used that still count: those of the last kKept milliseconds, less those after
  /// which kPasses used less and kKeptAtLeast milliseconds went by.
  Size kept(Time now) const noexcept {
    for (size_t i = 0; i < count_; ++i) {
      const Time age = now - uses_[i].time;
      if (age < kKept && (age < kKeptAtLeast || passes_ - uses_[i].pass < kPasses)) return uses_[i].size;
    }
    return 0;
  }
  /// True when kPasses passes used less than an earlier one, for the first time.
  bool has_settled() const noexcept { return count_ > 1 && passes_ - uses_[0].pass == kPasses; }

 private:
  static constexpr size_t kMost = 8;
  struct Use {
    Size size = 0;
    Time time = 0;
    std::uint64_t pass = 0;
  };
  std::array<Use, kMost> uses_;
  size_t count_ = 0;
  std::uint64_t passes_ = 0;
};

}  // namespace memoir
