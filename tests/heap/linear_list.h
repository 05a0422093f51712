// SPDX-License-Identifier: Apache-2.0
//
// The oracle of StaticTensorsHeap: a list of free ranges in the order of addresses that is walked from one
// end to the other for every request and every free. Obviously right, and slow.
#pragma once

#include <list>
#include <map>

#include "memoir/base/units.h"

namespace memoir {

class LinearList {
 public:
  LinearList(Size pool, Size alignment) : alignment_(alignment) { free_.push_back({0, pool}); }

  Offset allocate(Size bytes) {
    const Size size = align_up(bytes, alignment_);
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->size >= size && (best == free_.end() || at->size <= best->size)) best = at;
    }
    if (best == free_.end()) return kNoOffset;
    const Offset offset = best->begin;
    const Size rest = best->size - size;
    live_[offset] = rest >= alignment_ ? size : best->size;
    if (rest >= alignment_) {
      *best = {offset + size, rest};
    } else {
      free_.erase(best);
    }
    return offset;
  }

  void free(Offset offset) {
    Range freed{offset, live_.at(offset)};
    live_.erase(offset);
    auto at = free_.begin();
    while (at != free_.end() && at->begin < offset) ++at;
    at = free_.insert(at, freed);
    if (const auto after = std::next(at); after != free_.end() && at->end() == after->begin) {
      at->size += after->size;
      free_.erase(after);
    }
    if (at == free_.begin()) return;
    if (const auto before = std::prev(at); before->end() == at->begin) {
      before->size += at->size;
      free_.erase(at);
    }
  }

 private:
  Size alignment_;
  std::list<Range> free_;
  std::map<Offset, Size> live_;
};

}  // namespace memoir
