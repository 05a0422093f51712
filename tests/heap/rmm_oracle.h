// SPDX-License-Identifier: Apache-2.0
//
// The oracle of RmmHeap: a map of free ranges per stream, searched from end to end.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "heap/counting_device.h"

namespace memoir {

class RmmOracle {
 public:
  RmmOracle(Segments& device, Size maximum) : device_(device), maximum_(maximum) {}

  Offset allocate(Size asked, StreamId stream) {
    const Size size = align_up(asked, 256);
    if (std::find(seen_.begin(), seen_.end(), stream) == seen_.end()) seen_.push_back(stream);
    Range block = get(size, stream);
    if (block.size == 0) return kNoOffset;
    if (block.size > size) insert(stream, {block.begin + size, block.size - size});
    live_[block.begin] = {size, stream};
    return block.begin;
  }
  void free(Offset offset) {
    const auto [size, stream] = live_.at(offset);
    live_.erase(offset);
    insert(stream, {offset, size});
  }

 private:
  Range get(Size size, StreamId stream) {
    if (const Range block = pop_best(stream, size); block.size != 0) return block;
    for (const StreamId other : seen_) {
      if (other == stream) continue;
      if (const Range block = pop_best(other, size); block.size != 0) {
        join(stream, other);
        return block;
      }
    }
    for (const StreamId other : seen_) {
      if (other == stream || lists_[other].empty()) continue;
      join(stream, other);
      if (const Range block = pop_best(stream, size); block.size != 0) return block;
    }
    Size attempt = std::max(size, held_);
    if (maximum_ != 0) {
      const Size left = maximum_ - held_;
      if (size > left) return {};
      attempt = std::max(size, align_down(left / 2, 256));
    }
    for (;; attempt = std::max(size, align_up(attempt / 2, 256))) {
      if (const Offset offset = device_.take(attempt); offset != kNoOffset) {
        held_ += attempt;
        heads_.insert(offset);
        return {offset, attempt};
      }
      if (attempt == size) return {};
    }
  }
  Range pop_best(StreamId stream, Size size) {
    auto& list = lists_[stream];
    auto best = list.end();
    for (auto at = list.begin(); at != list.end(); ++at) {
      if (at->second >= size && (best == list.end() || at->second < best->second)) best = at;
    }
    if (best == list.end()) return {};
    const Range block{best->first, best->second};
    list.erase(best);
    return block;
  }
  void insert(StreamId stream, Range block) {
    auto& list = lists_[stream];
    const auto after = list.find(block.end());
    if (after != list.end() && !heads_.contains(after->first)) {
      block.size += after->second;
      list.erase(after);
    }
    for (auto at = list.begin(); at != list.end(); ++at) {
      if (at->first + at->second == block.begin && !heads_.contains(block.begin)) {
        at->second += block.size;
        return;
      }
    }
    list[block.begin] = block.size;
  }
  void join(StreamId stream, StreamId other) {
    for (const auto& [begin, size] : lists_[other]) insert(stream, {begin, size});
    lists_[other].clear();
  }

  Segments& device_;
  Size maximum_, held_ = 0;
  std::vector<StreamId> seen_;
  std::map<StreamId, std::map<Offset, Size>> lists_;
  std::set<Offset> heads_;
  std::map<Offset, std::pair<Size, StreamId>> live_;
};

}  // namespace memoir
