// SPDX-License-Identifier: Apache-2.0
//
// Which granules of an arena are committed: one bit each, and their count. Shared by every arena, so that all
// of them answer commit and decommit alike. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

class GranuleSet {
 public:
  /// For `capacity` bytes (a multiple of `granule`, a power of two). False when there is no metadata memory.
  bool reset(Size capacity, Size granule) noexcept {
    granule_ = granule;
    capacity_ = capacity;
    committed_ = 0;
    return words_.assign((capacity / granule + 63) / 64, 0);
  }

  /// The range rounded outwards to granules (what a commit covers); empty when it leaves the arena.
  Range cover(Range range) const noexcept {
    if (range.size == 0 || range.begin > capacity_ || range.size > capacity_ - range.begin) return {};
    const Offset begin = align_down(range.begin, granule_);
    return {begin, align_up(range.end(), granule_) - begin};
  }
  /// The granules wholly inside the range (what a decommit covers); empty when there are none.
  Range inside(Range range) const noexcept {
    if (range.begin > capacity_ || range.size > capacity_ - range.begin) return {};
    const Offset begin = align_up(range.begin, granule_), end = align_down(range.end(), granule_);
    return begin < end ? Range{begin, end - begin} : Range{};
  }

  bool contains(Range covered) const noexcept {
    bool all = true;
    for_each_word(covered, [&](size_t word, std::uint64_t bits) { all &= (words_[word] & bits) == bits; });
    return all;
  }
  /// Bytes of the range that are committed.
  Size committed_in(Range covered) const noexcept {
    Size found = 0;
    for_each_word(covered, [&](size_t word, std::uint64_t bits) {
      found += static_cast<Size>(std::popcount(words_[word] & bits)) * granule_;
    });
    return found;
  }
  void insert(Range covered) noexcept { set(covered, true); }
  void erase(Range covered) noexcept { set(covered, false); }

  Size committed() const noexcept { return committed_; }
  Size granule() const noexcept { return granule_; }
  Size capacity() const noexcept { return capacity_; }

 private:
  void set(Range covered, bool value) noexcept {
    for_each_word(covered, [&](size_t word, std::uint64_t bits) {
      const std::uint64_t before = words_[word];
      words_[word] = value ? before | bits : before & ~bits;
      const auto changed = static_cast<Size>(std::popcount(before ^ words_[word])) * granule_;
      committed_ = value ? committed_ + changed : committed_ - changed;
    });
  }
  /// Calls `body(word, bits)` for every word that has bits of these granules.
  template <class Body>
  void for_each_word(Range covered, Body body) const noexcept {
    const Size end = covered.end() / granule_;
    for (Size at = covered.begin / granule_; at < end;) {
      const Size count = std::min(end - at, 64 - at % 64);
      body(at / 64, (~std::uint64_t{0} >> (64 - count)) << (at % 64));
      at += count;
    }
  }

  MetadataArray<std::uint64_t> words_;
  Size granule_ = 1;
  Size capacity_ = 0;
  Size committed_ = 0;
};

}  // namespace memoir
