// SPDX-License-Identifier: Apache-2.0
//
// An arena between a heap and the one that it works in, which sees what the heap asks for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "memoir/arena/arena.h"

namespace memoir::contract {

/// Passes everything on, keeps its own account of what is committed, and notes what a heap should not ask.
class WatchedArena final : public Arena {
 public:
  explicit WatchedArena(Arena& inner)
      : inner_(&inner), granules_((inner.capacity() / inner.granule() + 63) / 64) {}
  Size capacity() const noexcept override { return inner_->capacity(); }
  Size granule() const noexcept override { return inner_->granule(); }
  Size committed() const noexcept override { return inner_->committed(); }
  bool commit(Range range) noexcept override {
    if (range.size == 0 || range.begin > capacity() || range.size > capacity() - range.begin) outside_ = true;
    if (!inner_->commit(range)) return false;
    const Size last = (range.end() - 1) / granule();
    for_each_word(range.begin / granule(), last + 1, [&](Size word, std::uint64_t bits) {
      granules_[word] |= bits;
      return true;
    });
    return true;
  }
  void decommit(Range range) noexcept override {
    inner_->decommit(range);
    forget(range);
  }
  void take_away(Range range) noexcept override {
    inner_->take_away(range);
    forget(range);
  }
  void settle() noexcept override { inner_->settle(); }
  Size room() noexcept override { return inner_->room(); }

  bool holds(Range range) const {
    return for_each_word(range.begin / granule(), (range.end() - 1) / granule() + 1,
                         [&](Size word, std::uint64_t bits) { return (granules_[word] & bits) == bits; });
  }
  bool outside() const { return outside_; }

 private:
  void forget(Range range) {
    const Size first = align_up(range.begin, granule()) / granule();
    for_each_word(first, range.end() / granule(), [&](Size word, std::uint64_t bits) {
      granules_[word] &= ~bits;
      return true;
    });
  }
  /// Calls `body(word, bits)` for the granules [first, end) until it says false, which is then the answer.
  template <class Body>
  static bool for_each_word(Size first, Size end, Body body) {
    while (first < end) {
      const Size count = std::min(end - first, 64 - first % 64);
      if (!body(first / 64, (~std::uint64_t{0} >> (64 - count)) << (first % 64))) return false;
      first += count;
    }
    return true;
  }

  Arena* inner_;
  std::vector<std::uint64_t> granules_;  // committed, a bit each
  bool outside_ = false;
};

}  // namespace memoir::contract
