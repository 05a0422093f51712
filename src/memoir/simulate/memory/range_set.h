// SPDX-License-Identifier: Apache-2.0
//
// Which bytes of an address space are in a set, as ranges: a range of any length costs what one byte costs.
//
//   {[0, 4), [8, 10)}   insert [2, 9)  ->  {[0, 10)}, and [4, 8) was new
//
// Uses the heap's memory: for simulations. Not thread-safe.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>

#include "memoir/base/units.h"

namespace memoir {

class RangeSet {
 public:
  /// Bytes of all ranges.
  Size bytes() const noexcept { return bytes_; }
  /// Bytes of the range that are in the set.
  Size bytes_in(Range range) const {
    Size found = 0;
    for (auto at = first_behind(range.begin); at != ranges_.end() && at->first < range.end(); ++at)
      found += std::min(at->second, range.end()) - std::max(at->first, range.begin);
    return found;
  }
  /// Calls `body(gap)` for each part of the range that is not in the set, by address. It may stop that with
  /// false, and must not change the set.
  template <class Body>
  bool for_each_gap(Range range, Body body) const {
    Offset begin = range.begin;
    for (auto at = first_behind(begin); begin < range.end(); ++at) {
      const Offset end = at == ranges_.end() ? range.end() : std::min(at->first, range.end());
      if (begin < end && !body(Range{begin, end - begin})) return false;
      if (at == ranges_.end()) break;
      begin = std::max(begin, at->second);
    }
    return true;
  }
  void insert(Range range) {
    if (range.size == 0) return;
    auto at = first_behind(range.begin);
    if (at != ranges_.end() && at->first <= range.begin && at->second >= range.end()) return;
    Offset begin = range.begin, end = range.end();
    if (at != ranges_.begin() && std::prev(at)->second == begin) --at;
    while (at != ranges_.end() && at->first <= end) {
      begin = std::min(begin, at->first), end = std::max(end, at->second);
      bytes_ -= at->second - at->first;
      at = ranges_.erase(at);
    }
    ranges_.emplace_hint(at, begin, end);
    bytes_ += end - begin;
  }
  /// Calls `body(part)` for each part of the range that was in the set, by address. It must not change it.
  template <class Body>
  void erase(Range range, Body body) {
    for (auto at = first_behind(range.begin); at != ranges_.end() && at->first < range.end();) {
      const auto [begin, end] = *at;
      const Offset low = std::max(begin, range.begin), high = std::min(end, range.end());
      at = ranges_.erase(at);
      if (begin < low) ranges_.emplace_hint(at, begin, low);
      if (high < end) at = ranges_.emplace_hint(at, high, end);
      bytes_ -= high - low;
      body(Range{low, high - low});
    }
  }
  void erase(Range range) {
    erase(range, [](Range) {});
  }

 private:
  using Ranges = std::map<Offset, Offset>;  // begin -> end; none touches another

  /// The first that ends behind this offset.
  Ranges::const_iterator first_behind(Offset offset) const {
    auto at = ranges_.upper_bound(offset);
    if (at != ranges_.begin() && std::prev(at)->second > offset) --at;
    return at;
  }
  Ranges::iterator first_behind(Offset offset) {
    auto at = ranges_.upper_bound(offset);
    if (at != ranges_.begin() && std::prev(at)->second > offset) --at;
    return at;
  }

  Ranges ranges_;
  Size bytes_ = 0;
};

}  // namespace memoir
