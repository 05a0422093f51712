// SPDX-License-Identifier: Apache-2.0
//
// The oracle of RmmArenaHeap: superblocks as sorted lists of free ranges, searched from end to end.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

class RmmArenaOracle {
 public:
  explicit RmmArenaOracle(Size size) { global_.push_back({{0, size}, {{0, size}}}); }

  Offset allocate(Size asked, StreamId stream) {
    const Size size = align_up(asked, 256);
    Offset offset = get(size, stream);
    if (offset == kNoOffset) {
      ++defragmented;
      for (auto& [_, superblocks] : streams_) {
        for (const Superblock& superblock : superblocks) put_back(superblock);
        superblocks.clear();
      }
      offset = get(size, stream);
    }
    if (offset != kNoOffset) live_[offset] = size;
    return offset;
  }
  void free(Offset offset) {
    const Range range{offset, live_.at(offset)};
    live_.erase(offset);
    for (auto& [_, superblocks] : streams_) {
      for (Superblock& superblock : superblocks) {
        if (superblock.range.overlaps(range)) return put(superblock, range);
      }
    }
    for (size_t i = 0; i < global_.size(); ++i) {
      if (!global_[i].range.overlaps(range)) continue;
      Superblock superblock = global_[i];
      global_.erase(global_.begin() + static_cast<std::ptrdiff_t>(i));
      put(superblock, range);
      return put_back(superblock);
    }
  }

  size_t defragmented = 0;

 private:
  struct Superblock {
    Range range;
    std::vector<Range> free;  // by address
    bool empty() const { return free.size() == 1 && free[0].size == range.size; }
  };
  using List = std::vector<Superblock>;  // by address

  static void sort(List& list) {
    std::sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.range.begin < b.range.begin; });
  }
  static Offset carve(Superblock& superblock, Size size) {
    for (size_t i = 0; i < superblock.free.size(); ++i) {
      Range& range = superblock.free[i];
      if (range.size < size) continue;
      const Offset offset = range.begin;
      range = {range.begin + size, range.size - size};
      if (range.size == 0) superblock.free.erase(superblock.free.begin() + static_cast<std::ptrdiff_t>(i));
      return offset;
    }
    return kNoOffset;
  }
  Offset get(Size size, StreamId stream) {
    if (size <= kMiB) {
      for (Superblock& superblock : streams_[stream]) {
        if (const Offset offset = carve(superblock, size); offset != kNoOffset) return offset;
      }
    }
    for (size_t i = 0; i < global_.size(); ++i) {
      Superblock superblock = global_[i];
      const bool was_empty = superblock.empty();
      const Offset offset = carve(superblock, size);
      if (offset == kNoOffset) continue;
      const Size head = std::max(size, kMiB);
      if (was_empty && superblock.range.size >= head + kMiB) {
        const Range tail{superblock.range.begin + head, superblock.range.size - head};
        superblock = {{superblock.range.begin, head}, {{superblock.range.begin, head}}};
        carve(superblock, size);
        global_.push_back({tail, {tail}});
      }
      global_.erase(global_.begin() + static_cast<std::ptrdiff_t>(i));
      List& list = size <= kMiB ? streams_[stream] : global_;
      list.push_back(superblock);
      sort(list);
      sort(global_);
      return offset;
    }
    return kNoOffset;
  }
  static void put(Superblock& superblock, Range range) {
    superblock.free.push_back(range);
    std::sort(superblock.free.begin(), superblock.free.end(),
              [](auto& a, auto& b) { return a.begin < b.begin; });
    std::vector<Range> joined;
    for (const Range& one : superblock.free) {
      if (!joined.empty() && joined.back().end() == one.begin) joined.back().size += one.size;
      else joined.push_back(one);
    }
    superblock.free = joined;
  }
  void put_back(const Superblock& superblock) {
    global_.push_back(superblock);
    sort(global_);
    List joined;
    for (const Superblock& one : global_) {
      if (!joined.empty() && joined.back().empty() && one.empty() &&
          joined.back().range.end() == one.range.begin) {
        joined.back().range.size += one.range.size;
        joined.back().free = {joined.back().range};
      } else {
        joined.push_back(one);
      }
    }
    global_ = joined;
  }

  List global_;
  std::map<StreamId, List> streams_;
  std::map<Offset, Size> live_;
};

}  // namespace memoir
