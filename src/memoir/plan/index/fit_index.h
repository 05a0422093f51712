// SPDX-License-Identifier: Apache-2.0
//
// Finds room among the buffers placed so far, without a conflict graph: 10^6 random buffers have 10^8 pairs
// that live together, this index has one entry for each buffer.
//
// Buffers whose lifetimes span [2^k, 2^(k+1)) sections are kept on level k, in the bucket of their first
// section >> k. What lives together with [first, last) is then in a few neighbouring buckets of each level.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memoir/plan/index/first_fit_orders.h"
#include "memoir/plan/index/sections.h"
#include "memoir/plan/plan.h"

namespace memoir {

class FitIndex {
 public:
  /// Both must outlive it. O(n) memory: 32 bytes per buffer and 8 per bucket.
  FitIndex(const Problem& problem, const Sections& sections);

  void insert(std::uint32_t buffer, Offset offset);
  void erase(std::uint32_t buffer);
  void clear();
  bool contains(std::uint32_t buffer) const { return where_[buffer] != kAbsent; }
  Offset offset_of(std::uint32_t buffer) const { return entries_[where_[buffer]].begin; }

  /// The lowest aligned offset at which the buffer overlaps no one (first fit), or the lowest of the tightest
  /// gaps that hold it (best fit; the open end above counts as the largest gap).
  Offset first_fit(std::uint32_t buffer);
  Offset best_fit(std::uint32_t buffer);

  /// Calls visit(other, begin, end) for each placed buffer that lives together with this one, in no
  /// particular order.
  template <class Visit>
  void each_neighbour(std::uint32_t buffer, Visit&& visit) const;

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};
  struct Entry {
    std::uint32_t first, last;
    Offset begin, end;
    std::uint32_t buffer;
  };
  struct Level {
    std::uint32_t shift, buckets, base;  // its buckets are [base, base + buckets)
  };

  std::uint32_t bucket_of(std::uint32_t buffer) const;
  void gather(std::uint32_t buffer);

  const Problem& problem_;
  const Sections& sections_;
  std::vector<Level> levels_;                  // those that have buffers, short ones first
  std::vector<std::uint32_t> level_of_shift_;  // index into levels_
  std::vector<std::uint32_t> bucket_begin_,
      used_;  // per bucket: its stretch of entries_ and how many are in use
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> where_;              // per buffer: its entry, or kAbsent
  std::vector<std::pair<Offset, Offset>> found_;  // scratch: [begin, end) of the neighbours
};

/// The lowest aligned offset with `size` free bytes next to these occupied ranges [begin, end), which it
/// sorts.
Offset lowest_gap(std::vector<std::pair<Offset, Offset>>& occupied, Size size, Size alignment);

/// The lowest of the tightest gaps that hold it; the open end above counts as the largest gap.
Offset tightest_gap(std::vector<std::pair<Offset, Offset>>& occupied, Size size, Size alignment);

/// True where the average buffer meets so many others that a GapIndex fits faster than a FitIndex.
bool lives_long(const Sections& sections);

/// Places every buffer of the order, first fit or best fit. offsets[i] is for problem[i].
std::vector<Offset> fit_in_order(const Problem& problem, const Sections& sections, const Order& order,
                                 bool best = false);

/// The smallest arena that holds these offsets.
Size arena_size(const Problem& problem, const std::vector<Offset>& offsets);

template <class Visit>
void FitIndex::each_neighbour(std::uint32_t buffer, Visit&& visit) const {
  const std::uint32_t first = sections_.first[buffer], last = sections_.last[buffer];
  for (const Level& level : levels_) {
    const std::uint64_t longest = (std::uint64_t{2} << level.shift) - 1;
    const auto from = static_cast<std::uint32_t>((first >= longest ? first - longest + 1 : 0) >> level.shift);
    const std::uint32_t to = std::min(level.buckets - 1, (last - 1) >> level.shift);
    for (std::uint32_t b = level.base + from; b <= level.base + to; ++b) {
      const Entry* entry = entries_.data() + bucket_begin_[b];
      for (const Entry* end = entry + used_[b]; entry != end; ++entry) {
        if (entry->first < last && first < entry->last) visit(entry->buffer, entry->begin, entry->end);
      }
    }
  }
}

}  // namespace memoir
