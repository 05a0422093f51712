// SPDX-License-Identifier: Apache-2.0
//
// Which granules of an arena are committed: one bit each, and their count. Shared by every arena, so that all
// of them answer commit and decommit alike. Not thread-safe.
#pragma once

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
    for (Offset at = covered.begin; at < covered.end(); at += granule_) {
      if (!bit(at / granule_)) return false;
    }
    return true;
  }
  void insert(Range covered) noexcept { set(covered, true); }
  void erase(Range covered) noexcept { set(covered, false); }

  Size committed() const noexcept { return committed_; }
  Size granule() const noexcept { return granule_; }
  Size capacity() const noexcept { return capacity_; }

 private:
  bool bit(size_t index) const noexcept { return words_[index / 64] >> (index % 64) & 1; }
  void set(Range covered, bool value) noexcept {
    for (Offset at = covered.begin; at < covered.end(); at += granule_) {
      const size_t index = at / granule_;
      if (bit(index) == value) continue;
      words_[index / 64] ^= std::uint64_t{1} << (index % 64);
      committed_ = value ? committed_ + granule_ : committed_ - granule_;
    }
  }

  MetadataArray<std::uint64_t> words_;
  Size granule_ = 1;
  Size capacity_ = 0;
  Size committed_ = 0;
};

}  // namespace memoir
