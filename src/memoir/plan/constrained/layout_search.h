// SPDX-License-Identifier: Apache-2.0
//
// Complete search over the places of some bodies in one arena, whatever the problem says of them.
//
// Two bodies a and b that conflict may not have certain differences d = offset(a) - offset(b): a union of
// open intervals (x, y), one for whole buffers, several where windows differ, split at 0 where they may share
// in place. For each interval a plan has d <= x or d >= y, so a node is a set of such choices:
//
//   low[b]    the lowest offsets that meet the choices, a fixpoint of  low[a] >= next(low[b] + y)
//   high[b]   the greatest ones within the capacity, the same from above
//
// next() is the lowest offset from there on that the body may have at all: alignment, forbidden ranges, a
// fixed offset, the banks chosen for it. When a bound rules one side out, the other is chosen; when the
// offsets low[] break no interval, they are a plan, and no plan of this node is lower anywhere. Otherwise a
// broken interval is branched on. Every plan meets some leaf, so a search that ends is a proof.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/plan/constrained/bodies.h"
#include "memoir/plan/search/exact/exact_search.h"

namespace memoir {

class LayoutSearch {
 public:
  /// `fixed`: per chosen body an offset that it must have, or kNoOffset. `bodies` must outlive it.
  LayoutSearch(const Bodies& bodies, std::vector<std::uint32_t> chosen, std::uint32_t arena,
               const std::vector<Offset>& fixed);

  /// Offsets, per chosen body, that end at or below `capacity` (< 2^62), or the proof that there are none.
  Verdict run(Size capacity, const SearchLimits& limits, std::vector<Offset>& offsets);

  /// A capacity within which a plan exists if any does.
  Size horizon() const { return horizon_; }
  std::uint64_t nodes() const { return nodes_; }  // of all runs

 private:
  using Units = std::int64_t;
  enum Side : std::int8_t { kOpen, kBelow, kAbove };  // d <= x, d >= y
  struct Interval {
    Units x, y;
  };
  struct Pair {
    std::uint32_t a, b;
    std::uint32_t first, last;  // its intervals, by x
  };
  struct BankState {  // the bank of the first byte, and how many banks are touched; count 0: not chosen
    std::uint32_t first = 0, count = 0;
  };
  struct Section {
    std::uint32_t first, last;  // of members_
    Units total;
  };
  struct Member {
    std::uint32_t body;
    Units begin, end;  // the window
  };

  void make_pairs();
  void make_sections();
  bool alike(std::uint32_t a, std::uint32_t b) const;
  Units next(std::uint32_t i, Units from) const;
  bool raise(std::uint32_t i, Units to);
  bool lower(std::uint32_t i, Units to);
  bool propagate();
  bool propagate(const Pair& pair);
  bool sections_hold() const;
  bool banks_meet(std::uint32_t a, std::uint32_t b) const;
  Verdict search();
  Verdict branch(std::uint32_t pair, std::uint32_t interval);
  Verdict branch_banks(std::uint32_t i);
  template <class Choose>
  Verdict descend(Choose choose);

  const Bodies& bodies_;
  const std::vector<std::uint32_t> chosen_;
  const ArenaChoice& arena_;
  Banks banks_;
  Size horizon_ = 0;

  std::vector<Offset> fixed_;
  std::vector<Units> size_;
  std::vector<Interval> intervals_;
  std::vector<Pair> pairs_;
  std::vector<std::vector<std::uint32_t>> pairs_of_;            // per body
  std::vector<std::pair<std::uint32_t, std::uint32_t>> apart_;  // bodies
  std::vector<Section> sections_;
  std::vector<Member> members_;

  std::vector<Units> low_, high_;
  std::vector<Side> side_;       // per interval
  std::vector<BankState> bank_;  // per body
  std::vector<std::uint32_t> dirty_;
  std::vector<bool> is_dirty_;

  Units capacity_ = 0;
  SearchLimits limits_;
  std::uint64_t nodes_ = 0;
};

}  // namespace memoir
