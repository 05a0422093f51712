// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/stack_cache.h"

#include <string.h>

namespace memoir::stacks {

void StackCache::clear() noexcept {
  used_words_ = used_segments_ = 0;
  next_branch_ = 1;
  memset(segments_, 0, sizeof segments_);
}

/// The first of `words` is what leads to the rest.
void StackCache::add_leaf(std::uint32_t key, const Word* words, unsigned count, Address slot, bool needs_rbp,
                          Address rbp, NodeId node) noexcept {
  Segment& segment = segments_[place(key, words[0].value)];
  segment = {words[0].value,
             key,
             node,
             static_cast<std::uint16_t>(used_words_),
             static_cast<std::uint16_t>(count - 1),
             0,
             true,
             needs_rbp};
  ++used_segments_;
  for (unsigned i = 1; i < count; ++i)
    words_[used_words_++] = words[i].value | (words[i].slot - slot) / 8 << kValueBits;
  words_[used_words_++] = rbp;
}

void StackCache::put(const Word* words, unsigned count, bool needs_rbp, Address rbp, NodeId node) noexcept {
  if (resting_ != 0 || count == 0 || count > kMostWords) return;
  const Address slot = words[0].slot;
  for (unsigned i = 0; i < count; ++i) {
    if (words[i].slot < slot || (words[i].slot - slot) / 8 > 0xffff) return;  // a stack of more than 512 KiB
    if (words[i].value >> kValueBits != 0) return;                            // no address
  }
  if (used_words_ + count > kWords || used_segments_ + 3 > kSegments * 3 / 4) {
    if (hits_ < puts_ * kLeastHits) resting_ = kRest;
    hits_ = puts_ = 0;
    clear();
    if (resting_ != 0) return;
  }
  ++puts_;
  std::uint32_t key = root(slot);
  unsigned at = place(key, words[0].value);
  unsigned done = 0;  // words that lead to `at`
  while (segments_[at].key != 0) {
    Segment& segment = segments_[at];
    ++done;
    unsigned i = 0;
    for (; i < segment.count && done < count; ++i, ++done) {
      const std::uint64_t old = words_[segment.first + i];
      const std::uint64_t now = words[done].value | (words[done].slot - slot) / 8 << kValueBits;
      // Two stacks that agree so far stand at the same places; where another word counts, this one is not
      // kept.
      if (old >> kValueBits != now >> kValueBits) return;
      if (old != now) break;
    }
    if (i < segment.count) {
      if (done == count) return;
      // They part inside of this segment, which is cut in two.
      const std::uint64_t old = words_[segment.first + i];
      const Address value = old & ((std::uint64_t{1} << kValueBits) - 1);
      const std::uint32_t branch = next_branch_++;
      Segment tail = segment;
      tail.value = value;
      tail.key = branch;
      tail.first = static_cast<std::uint16_t>(segment.first + i + 1);
      tail.count = static_cast<std::uint16_t>(segment.count - i - 1);
      segment.branch_offset = static_cast<std::uint16_t>(old >> kValueBits);
      segment.count = static_cast<std::uint16_t>(i);
      segment.is_leaf = segment.needs_rbp = false;
      segment.next = branch;
      segments_[place(branch, value)] = tail;
      ++used_segments_;
      key = branch;
      break;
    }
    if (segment.is_leaf) {  // the same words: rbp differs
      if (done != count) return;
      segment.needs_rbp = needs_rbp;
      segment.next = node;
      words_[segment.first + segment.count] = rbp;
      return;
    }
    if (done == count || segment.branch_offset != (words[done].slot - slot) / 8) return;
    key = segment.next;
    at = place(key, words[done].value);
  }
  add_leaf(key, words + done, count - done, slot, needs_rbp, rbp, node);
}

}  // namespace memoir::stacks
