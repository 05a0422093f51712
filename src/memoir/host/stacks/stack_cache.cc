// SPDX-License-Identifier: Apache-2.0
#include "memoir/host/stacks/stack_cache.h"

#include <string.h>

namespace memoir::stacks {

void StackCache::clear() noexcept {
  used_words_ = used_segments_ = used_children_ = 0;
  next_branch_ = 1;
  memset(children_, 0, sizeof children_);
}

void StackCache::add_child(std::uint32_t branch, Address value, unsigned segment) noexcept {
  unsigned i = hash(branch, value);
  while (children_[i].segment != 0) i = (i + 1) & (kChildren - 1);
  children_[i] = {value, branch, static_cast<std::uint16_t>(segment + 1)};
  ++used_children_;
}

unsigned StackCache::add_segment(const Word* words, unsigned count, Address slot, bool needs_rbp, Address rbp,
                                 NodeId node) noexcept {
  const unsigned index = used_segments_++;
  segments_[index] = {
      static_cast<std::uint16_t>(used_words_), static_cast<std::uint16_t>(count), 0, needs_rbp, 0, node, rbp};
  for (unsigned i = 0; i < count; ++i, ++used_words_) {
    values_[used_words_] = words[i].value;
    offsets_[used_words_] = static_cast<std::uint16_t>((words[i].slot - slot) / 8);
  }
  return index;
}

void StackCache::put(const Word* words, unsigned count, bool needs_rbp, Address rbp, NodeId node) noexcept {
  if (resting_ != 0 || count == 0 || count > kMostWords) return;
  const Address slot = words[0].slot;
  for (unsigned i = 0; i < count; ++i)
    if ((words[i].slot - slot) / 8 > 0xffff || words[i].slot < slot) return;  // a stack of more than 512 KiB
  if (used_words_ + count > kWords || used_segments_ + 2 > kSegments ||
      used_children_ + 3 > kChildren * 3 / 4) {
    if (hits_ < puts_ * kLeastHits) resting_ = kRest;
    hits_ = puts_ = 0;
    clear();
    if (resting_ != 0) return;
  }
  ++puts_;
  unsigned at = child(root(slot), words[0].value);
  unsigned done = 1;
  if (at == kNone) {
    add_child(root(slot), words[0].value, add_segment(words + 1, count - 1, slot, needs_rbp, rbp, node));
    return;
  }
  for (;;) {
    Segment& segment = segments_[at];
    unsigned i = 0;
    for (; i < segment.count && done < count; ++i, ++done) {
      // Two stacks that agree so far stand at the same places; where another word counts, this one is not
      // kept.
      if (offsets_[segment.first + i] != (words[done].slot - slot) / 8) return;
      if (values_[segment.first + i] != words[done].value) break;
    }
    if (i == segment.count) {
      if (segment.leaf != 0) {  // the same words: rbp differs
        if (done == count) segment.needs_rbp = needs_rbp, segment.rbp = rbp, segment.leaf = node;
        return;
      }
      if (done == count || segment.branch_offset != (words[done].slot - slot) / 8) return;
      const unsigned next = child(segment.branch, words[done].value);
      ++done;
      if (next == kNone) {
        const std::uint32_t branch = segment.branch;
        add_child(branch, words[done - 1].value,
                  add_segment(words + done, count - done, slot, needs_rbp, rbp, node));
        return;
      }
      at = next;
      continue;
    }
    if (done == count) return;
    // They part inside of this segment, which is cut in two.
    const unsigned tail = used_segments_++;
    segments_[tail] = segment;
    segments_[tail].first = static_cast<std::uint16_t>(segment.first + i + 1);
    segments_[tail].count = static_cast<std::uint16_t>(segment.count - i - 1);
    const Address old = values_[segment.first + i];
    segment.branch_offset = offsets_[segment.first + i];
    segment.count = static_cast<std::uint16_t>(i);
    segment.leaf = 0;
    segment.branch = next_branch_++;
    add_child(segment.branch, old, tail);
    add_child(segment.branch, words[done].value,
              add_segment(words + done + 1, count - done - 1, slot, needs_rbp, rbp, node));
    return;
  }
}

}  // namespace memoir::stacks
