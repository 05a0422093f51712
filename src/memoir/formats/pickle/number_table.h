// SPDX-License-Identifier: Apache-2.0
//
// Things that are kept once, under consecutive numbers: which number has one that is equal? Open addressing
// over the numbers alone; the things themselves are their owner's.
#pragma once

#include <cstdint>
#include <vector>

namespace memoir {

class NumberTable {
 public:
  /// The number that bears `hash` and for which same(number) holds; else `next`, which from then on stands in
  /// the table. hash_of(number) gives again the hash of one that was added.
  template <class Same, class HashOf>
  std::uint32_t find_or_add(std::uint64_t hash, std::uint32_t next, Same same, HashOf hash_of) {
    if ((count_ + 1) * 2 > slots_.size()) {
      std::vector<std::uint32_t> larger(slots_.size() * 2);
      for (const std::uint32_t slot : slots_) {
        if (slot == 0) continue;
        std::size_t to = hash_of(slot - 1) & (larger.size() - 1);
        while (larger[to] != 0) to = (to + 1) & (larger.size() - 1);
        larger[to] = slot;
      }
      slots_.swap(larger);
    }
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (same(slots_[at] - 1)) return slots_[at] - 1;
    }
    slots_[at] = next + 1;
    ++count_;
    return next;
  }

 private:
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1024);  // number + 1; 0: none
  std::size_t count_ = 0;
};

}  // namespace memoir
