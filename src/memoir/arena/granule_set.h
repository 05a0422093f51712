// SPDX-License-Identifier: Apache-2.0
//
// Which granules of an arena are committed: one bit each, and their count. Shared by every arena, so that all
// of them answer commit and decommit alike. Not thread-safe.
//
//   chunks   |  none  |  all   |  some  |  none  |       a byte each, of 262,144 granules
//   bits                        01101..                  only those of `some` count, and have memory
//
// A range of any length costs what its chunks cost: 16 TiB of pages are 16,384 of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

/// The range rounded outwards to granules (what a commit covers); empty when it leaves the arena.
inline Range granules_around(Range range, Size capacity, Size granule) noexcept {
  if (range.size == 0 || range.begin > capacity || range.size > capacity - range.begin) return {};
  const Offset begin = align_down(range.begin, granule);
  return {begin, align_up(range.end(), granule) - begin};
}
/// The granules wholly inside the range (what a decommit covers); empty when there are none.
inline Range granules_inside(Range range, Size capacity, Size granule) noexcept {
  if (range.begin > capacity || range.size > capacity - range.begin) return {};
  const Offset begin = align_up(range.begin, granule), end = align_down(range.end(), granule);
  return begin < end ? Range{begin, end - begin} : Range{};
}

class GranuleSet {
 public:
  /// For `capacity` bytes (a multiple of `granule`, a power of two). False when there is no metadata memory.
  bool reset(Size capacity, Size granule) noexcept {
    granule_ = granule;
    capacity_ = capacity;
    committed_ = 0;
    const Size granules = capacity / granule;
    return words_.reserve((granules + 63) / 64) &&
           chunks_.assign((granules + kGranules - 1) / kGranules, kNone);
  }

  Range cover(Range range) const noexcept { return granules_around(range, capacity_, granule_); }
  Range inside(Range range) const noexcept { return granules_inside(range, capacity_, granule_); }

  bool contains(Range covered) const noexcept { return committed_in(covered) == covered.size; }
  /// Bytes of the range that are committed.
  Size committed_in(Range covered) const noexcept {
    Size found = 0;
    for_each_chunk(covered, [&](Size chunk, Size begin, Size end) {
      if (chunks_[chunk] == kAll) found += end - begin;
      if (chunks_[chunk] != kSome) return;
      for_each_word(begin, end, [&](size_t word, std::uint64_t bits) {
        found += static_cast<Size>(std::popcount(words_[word] & bits));
      });
    });
    return found * granule_;
  }
  void insert(Range covered) noexcept { set(covered, kAll); }
  void erase(Range covered) noexcept { set(covered, kNone); }

  Size committed() const noexcept { return committed_; }
  Size granule() const noexcept { return granule_; }
  Size capacity() const noexcept { return capacity_; }

 private:
  enum Chunk : std::uint8_t { kNone, kSome, kAll };
  static constexpr Size kGranules = Size{64} * 4096;  // of a chunk; its bits are 32 KiB

  void set(Range covered, Chunk value) noexcept {
    const Size before = committed_in(covered);
    for_each_chunk(covered, [&](Size chunk, Size begin, Size end) {
      if (chunks_[chunk] == value) return;
      const Size first = chunk * kGranules, last = std::min(first + kGranules, capacity_ / granule_);
      if (begin == first && end == last) {
        chunks_[chunk] = value;
        return;
      }
      if (chunks_[chunk] != kSome) {
        const std::uint64_t bits = chunks_[chunk] == kAll ? ~std::uint64_t{0} : 0;
        for (Size word = first / 64; word < (last + 63) / 64; ++word) words_[word] = bits;
        chunks_[chunk] = kSome;
      }
      for_each_word(begin, end, [&](size_t word, std::uint64_t bits) {
        words_[word] = value == kAll ? words_[word] | bits : words_[word] & ~bits;
      });
    });
    committed_ += (value == kAll ? covered.size : 0) - before;  // modulo 2^64
  }
  /// Calls `body(chunk, begin, end)` with the granules of the range in each chunk.
  template <class Body>
  void for_each_chunk(Range covered, Body body) const noexcept {
    const Size end = covered.end() / granule_;
    for (Size at = covered.begin / granule_; at < end;) {
      const Size next = std::min(end, align_down(at, kGranules) + kGranules);
      body(at / kGranules, at, next);
      at = next;
    }
  }
  /// Calls `body(word, bits)` for every word that has bits of these granules.
  template <class Body>
  static void for_each_word(Size begin, Size end, Body body) noexcept {
    for (Size at = begin; at < end;) {
      const Size count = std::min(end - at, 64 - at % 64);
      body(at / 64, (~std::uint64_t{0} >> (64 - count)) << (at % 64));
      at += count;
    }
  }

  MetadataArray<std::uint64_t> words_;  // of chunks that have some; room for all
  MetadataArray<Chunk> chunks_;
  Size granule_ = 1;
  Size capacity_ = 0;
  Size committed_ = 0;
};

}  // namespace memoir
