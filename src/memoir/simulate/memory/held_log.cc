// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/memory/held_log.h"

#include <algorithm>
#include <iterator>

namespace memoir {

HeldLog::Ranges::iterator HeldLog::first_behind(Ranges& ranges, Offset offset) {
  auto found = ranges.upper_bound(offset);
  if (found != ranges.begin() && std::prev(found)->second.end > offset) --found;
  return found;
}

void HeldLog::hold(std::uint64_t space, Range range) {
  Ranges& ranges = spaces_[space];
  Offset at = range.begin;
  for (auto next = first_behind(ranges, at); at < range.end(); ++next) {
    const Offset until = next == ranges.end() ? range.end() : std::min(next->first, range.end());
    if (until > at) {
      const auto before = next == ranges.begin() ? ranges.end() : std::prev(next);
      if (is_mapped_ && before != ranges.end() && before->second.end == at && before->second.born == now_)
        before->second.end = until;
      else ranges.emplace_hint(next, at, Since{until, now_});
      held_ += until - at;
    }
    if (next == ranges.end()) return;
    at = std::max(at, next->second.end);
  }
}

void HeldLog::release(std::uint64_t space, Range range) {
  Ranges& ranges = spaces_[space];
  for (auto at = first_behind(ranges, range.begin); at != ranges.end() && at->first < range.end();) {
    const auto [begin, since] = *at;
    const Offset low = std::max(begin, range.begin);
    const Offset high = std::min(since.end, range.end());
    at = ranges.erase(at);
    if (begin < low) ranges.emplace(begin, Since{low, since.born});
    if (high < since.end) at = ranges.emplace(high, Since{since.end, since.born}).first;
    held_ -= high - low;
    if (since.born == now_) continue;
    Row* const last = done_.empty() || !is_mapped_ ? nullptr : &done_.back();
    if (last != nullptr && last->space == space && last->range.end() == low && last->born == since.born &&
        last->died == now_)
      last->range.size += high - low;
    else done_.push_back({space, {low, high - low}, since.born, now_});
  }
}

std::vector<HeldLog::Row> HeldLog::rows() const {
  std::vector<Row> all = done_;
  for (const auto& [space, ranges] : spaces_) {
    for (const auto& [begin, since] : ranges)
      all.push_back({space, {begin, since.end - begin}, since.born, kNever});
  }
  return all;
}

}  // namespace memoir
