// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/pytorch/free_block_set.h"

namespace memoir {

namespace {

/// One tree of two, all of whose blocks in `less` are less than those in `rest`.
BlockIndex join_trees(CachedBlocks& blocks, BlockIndex less, BlockIndex rest) noexcept {
  BlockIndex root = 0;
  BlockIndex* at = &root;
  while (less != 0 && rest != 0) {
    if (blocks[less].priority >= blocks[rest].priority) {
      *at = less;
      at = &blocks[less].right;
      less = *at;
    } else {
      *at = rest;
      at = &blocks[rest].left;
      rest = *at;
    }
  }
  *at = less != 0 ? less : rest;
  return root;
}

}  // namespace

/// Parts a tree into the blocks that are less than `key`, and the rest.
void FreeBlockSet::split_tree(CachedBlocks& blocks, BlockIndex root, const Key& key, BlockIndex& less,
                              BlockIndex& rest) const noexcept {
  BlockIndex* to_less = &less;
  BlockIndex* to_rest = &rest;
  while (root != 0) {
    if (is_less(blocks[root], key)) {
      *to_less = root;
      to_less = &blocks[root].right;
      root = *to_less;
    } else {
      *to_rest = root;
      to_rest = &blocks[root].left;
      root = *to_rest;
    }
  }
  *to_less = *to_rest = 0;
}

/// The least block of a tree that is not less than `key`, or 0.
BlockIndex FreeBlockSet::not_less(const CachedBlocks& blocks, BlockIndex root,
                                  const Key& key) const noexcept {
  BlockIndex found = 0;
  while (root != 0) {
    if (is_less(blocks[root], key)) {
      root = blocks[root].right;
    } else {
      found = root;
      root = blocks[root].left;
    }
  }
  return found;
}

void FreeBlockSet::insert(CachedBlocks& blocks, BlockIndex index) noexcept {
  CachedBlock& block = blocks[index];
  const size_t bin = bin_of(block.range.size);
  BlockIndex* at = &bins_[bin];
  if (*at == 0) {
    *at = index;
    block.left = block.right = 0;
    words_[bin / 64] |= std::uint64_t{1} << bin % 64;
    summary_ |= std::uint32_t{1} << bin / 64;
    return;
  }
  const Key key{block.range.size, tie_of(block)};
  while (*at != 0 && blocks[*at].priority >= block.priority) {
    at = is_less(blocks[*at], key) ? &blocks[*at].right : &blocks[*at].left;
  }
  const BlockIndex below = *at;
  *at = index;
  split_tree(blocks, below, key, block.left, block.right);
}

void FreeBlockSet::erase(CachedBlocks& blocks, BlockIndex index) noexcept {
  const CachedBlock& block = blocks[index];
  const size_t bin = bin_of(block.range.size);
  const Key key{block.range.size, tie_of(block)};
  BlockIndex* at = &bins_[bin];
  while (*at != index) at = is_less(blocks[*at], key) ? &blocks[*at].right : &blocks[*at].left;
  *at = join_trees(blocks, block.left, block.right);
  if (bins_[bin] != 0) return;
  words_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  if (words_[bin / 64] == 0) summary_ &= ~(std::uint32_t{1} << bin / 64);
}

BlockIndex FreeBlockSet::best_fit(const CachedBlocks& blocks, Size size) const noexcept {
  const size_t bin = bin_of(size);
  const BlockIndex found = not_less(blocks, bins_[bin], {size, 0});
  return found != 0 ? found : first_from(blocks, bin + 1);
}

BlockIndex FreeBlockSet::next(const CachedBlocks& blocks, BlockIndex index) const noexcept {
  const Range range = blocks[index].range;
  const size_t bin = bin_of(range.size);
  const BlockIndex found = not_less(blocks, bins_[bin], {range.size, tie_of(blocks[index]) + 1});
  return found != 0 ? found : first_from(blocks, bin + 1);
}

BlockIndex FreeBlockSet::previous(const CachedBlocks& blocks, BlockIndex index) const noexcept {
  const Range range = blocks[index].range;
  const size_t bin = bin_of(range.size);
  BlockIndex found = 0;
  for (BlockIndex at = bins_[bin]; at != 0;) {
    if (is_less(blocks[at], {range.size, tie_of(blocks[index])})) {
      found = at;
      at = blocks[at].right;
    } else {
      at = blocks[at].left;
    }
  }
  return found != 0 ? found : last_until(blocks, bin);
}

BlockIndex FreeBlockSet::first_from(const CachedBlocks& blocks, size_t bin) const noexcept {
  if (bin >= kBins) return 0;
  size_t word = bin / 64;
  std::uint64_t bits = words_[word] & (~std::uint64_t{0} << bin % 64);
  if (bits == 0) {
    const std::uint32_t words = word + 1 < kWords ? summary_ & (~std::uint32_t{0} << (word + 1)) : 0;
    if (words == 0) return 0;
    word = static_cast<size_t>(std::countr_zero(words));
    bits = words_[word];
  }
  BlockIndex at = bins_[64 * word + static_cast<size_t>(std::countr_zero(bits))];
  while (blocks[at].left != 0) at = blocks[at].left;
  return at;
}

BlockIndex FreeBlockSet::last_until(const CachedBlocks& blocks, size_t bin) const noexcept {
  for (size_t word = (bin + 63) / 64; word-- > 0;) {
    const size_t held = bin - 64 * word;  // bins of this word that count
    const std::uint64_t bits =
        words_[word] & (held >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << held) - 1);
    if (bits == 0) continue;
    BlockIndex at = bins_[64 * word + 63 - static_cast<size_t>(std::countl_zero(bits))];
    while (blocks[at].right != 0) at = blocks[at].right;
    return at;
  }
  return 0;
}

}  // namespace memoir
