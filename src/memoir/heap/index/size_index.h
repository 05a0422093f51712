// SPDX-License-Identifier: Apache-2.0
//
// The free blocks of a heap by (size, tie): exact best fit at the price of a size-class table. Sizes fall
// into eight classes per power of two (the two levels of TLSF: Masmano et al., 2004); each class is a treap,
// most of one or two blocks, and a bit per class says whether it has any.
//
//   class   ... [ 896, 1024) | [1024, 1152) | [1152, 1280) ...   a class's sizes are below the next one's, so
//   bit           0              1             0               the first block of the next class is the best
//   blocks                    (1024, a) (1088, b)                when none of its own class is large enough
//
// `key_of(const Record&)` gives a SizeKey; see treap.h for what a record must have. Trivially copyable: the
// records are elsewhere. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>

#include "memoir/base/units.h"
#include "memoir/heap/index/treap.h"

namespace memoir {

struct SizeKey {
  Size size;          // bytes
  std::uint64_t tie;  // among equal sizes the least is the best: an offset, its complement, an id
  auto operator<=>(const SizeKey&) const = default;
};

template <class Record, auto key_of>
class SizeIndex {
 public:
  using Index = std::uint32_t;

  void insert(Record* records, Index index) noexcept {
    const unsigned at = class_of(key_of(records[index]).size);
    Tree::insert(records, roots_[at], index);
    bits_[at / 64] |= std::uint64_t{1} << (at % 64);
  }
  void erase(Record* records, Index index) noexcept {
    const unsigned at = class_of(key_of(records[index]).size);
    Tree::erase(records, roots_[at], index);
    if (roots_[at] == 0) bits_[at / 64] &= ~(std::uint64_t{1} << (at % 64));
  }
  /// The block of the least key that is not less than `key`, or 0.
  Index lower_bound(const Record* records, const SizeKey& key) const noexcept {
    const unsigned at = class_of(key.size);
    if (roots_[at] != 0) {
      if (const Index index = Tree::lower_bound(records, roots_[at], key); index != 0) return index;
    }
    unsigned word = (at + 1) / 64;
    if (word == bits_.size()) return 0;
    std::uint64_t bits = bits_[word] & ~std::uint64_t{0} << ((at + 1) % 64);
    while (bits == 0) {
      if (++word == bits_.size()) return 0;
      bits = bits_[word];
    }
    return Tree::first(records, roots_[word * 64 + static_cast<unsigned>(std::countr_zero(bits))]);
  }
  /// The block after `index` in the order of keys, or 0.
  Index next(const Record* records, Index index) const noexcept {
    const SizeKey key = key_of(records[index]);
    return lower_bound(
        records, key.tie == ~std::uint64_t{0} ? SizeKey{key.size + 1, 0} : SizeKey{key.size, key.tie + 1});
  }
  /// The largest block of the greatest key, or 0.
  Index last(const Record* records) const noexcept {
    for (size_t word = bits_.size(); word-- > 0;) {
      if (bits_[word] != 0) {
        return Tree::last(records,
                          roots_[word * 64 + 63 - static_cast<unsigned>(std::countl_zero(bits_[word]))]);
      }
    }
    return 0;
  }
  bool empty() const noexcept {
    std::uint64_t any = 0;
    for (const std::uint64_t word : bits_) any |= word;
    return any == 0;
  }

 private:
  using Tree = Treap<Record, key_of>;

  static unsigned class_of(Size size) noexcept {  // size > 0
    const auto log2 = static_cast<unsigned>(std::bit_width(size)) - 1;
    return log2 < 3 ? static_cast<unsigned>(size) : log2 * 8 + static_cast<unsigned>(size >> (log2 - 3) & 7);
  }

  std::array<std::uint64_t, 8> bits_{};
  std::array<Index, 512> roots_{};
};

}  // namespace memoir
