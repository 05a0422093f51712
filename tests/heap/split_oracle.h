// SPDX-License-Identifier: Apache-2.0
//
// The oracle of SplitHeap: pull request 427's pool, written down with ordered sets and nothing clever.
#pragma once

#include <list>
#include <map>
#include <set>
#include <vector>

#include "heap/counting_device.h"
#include "memoir/heap/collector.h"

namespace memoir {

class SplitOracle {
 public:
  explicit SplitOracle(Segments& device) : device_(device) {}

  Collector* collector = nullptr;

  Offset allocate(Size asked) {
    const Size size = align_up(asked, asked <= kMiB ? 512 : asked <= 32 * kMiB ? 128 * kKiB : kMiB);
    const int own = class_of(size);
    const auto found = find(size, own);
    if (found == blocks_.end()) return kNoOffset;
    const Size rest = found->range.size - size;
    if (own != 2 && rest > 0 && class_of(rest) == own) {
      found->range.size = size;
      const auto second =
          blocks_.insert(std::next(found), {{found->range.end(), rest}, found->segment, ++id_, 'a'});
      available_[own].insert({{rest, second->id}, second});
    }
    found->state = 'l';
    live_[found->range.begin] = found;
    return found->range.begin;
  }
  void free(Offset offset) {
    const auto block = live_.at(offset);
    live_.erase(offset);
    block->state = 'f';
    freed_.push_back(block);
  }

 private:
  struct Block {
    Range range;
    Range segment;
    std::uint64_t id;
    char state;  // l: live, f: freed, a: available
  };
  using At = std::list<Block>::iterator;  // the blocks of a segment lie together, in the order of addresses

  static int class_of(Size size) { return size <= kMiB ? 0 : size <= 32 * kMiB ? 1 : 2; }

  At find(Size size, int own) {
    for (int phase = 1; phase <= 3; ++phase) {
      if (phase > 1 && collector != nullptr) collector->collect(phase == 3);
      for (const At block : freed_) {
        block->state = 'a';
        available_[class_of(block->range.size)].insert({{block->range.size, block->id}, block});
      }
      freed_.clear();
      join_all();
      auto best = available_[own].lower_bound({size, 0});
      if (best != available_[own].end() && (own != 2 || best->first.first == size)) {
        const At block = best->second;
        available_[own].erase(best);
        return block;
      }
      if (const At block = take(size); block != blocks_.end()) return block;
      for (const int from : {2, 1, 0}) {
        reclaim(from, size);
        if (const At block = take(size); block != blocks_.end()) return block;
      }
      for (const int from : {2, 1, 0}) reclaim(from, ~Size{0});
      if (const At block = take(size); block != blocks_.end()) return block;
    }
    return blocks_.end();
  }
  void join_all() {
    for (At block = blocks_.begin(); block != blocks_.end(); ++block) {
      for (At next; block->state == 'a' && (next = std::next(block)) != blocks_.end() && next->state == 'a' &&
                    next->segment == block->segment;) {
        available_[class_of(block->range.size)].erase({block->range.size, block->id});
        available_[class_of(next->range.size)].erase({next->range.size, next->id});
        block->range.size += next->range.size;
        blocks_.erase(next);
        available_[class_of(block->range.size)].insert({{block->range.size, block->id}, block});
      }
    }
  }
  void reclaim(int from, Size target) {
    Size given = 0;
    for (auto at = available_[from].begin(); at != available_[from].end() && given < target;) {
      const At block = at->second;
      if (block->range != block->segment) {
        ++at;
        continue;
      }
      given += block->range.size;
      device_.give_back(block->range);
      at = available_[from].erase(at);
      blocks_.erase(block);
    }
  }
  At take(Size size) {
    const Offset offset = device_.take(size);
    if (offset == kNoOffset) return blocks_.end();
    blocks_.push_back({{offset, size}, {offset, size}, ++id_, 'l'});
    return std::prev(blocks_.end());
  }

  Segments& device_;
  std::list<Block> blocks_;
  std::map<std::pair<Size, std::uint64_t>, At> available_[3];
  std::map<Offset, At> live_;
  std::vector<At> freed_;
  std::uint64_t id_ = 0;
};

}  // namespace memoir
