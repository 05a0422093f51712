// SPDX-License-Identifier: Apache-2.0
//
// Stacks of one thread that came before, by the words that stand in memory when they come again: a tree that
// branches where two stacks first differ.
//
//   event's place, return address -> | slot = word | slot = word | by the word in slot -> | ... | leaf: node
//
// A hit has compared every word that its stack was found by, so it is not a guess (see stack_walker.h).
// Memory is fixed: a full cache is emptied. One that hits too rarely to pay for itself, as with a compiler's
// hundred thousand stacks, rests for a while. Not thread-safe.
#pragma once

#include <cstdint>

#include "memoir/host/stacks/frame.h"
#include "memoir/host/stacks/unwind_rule.h"

namespace memoir::stacks {

class StackCache {
 public:
  static constexpr unsigned kMostWords = 300;  // of one stack

  /// A word of memory that a stack was found by.
  struct Word {
    Address slot, value;
  };

  void clear() noexcept;

  /// The stack of an event at `slot` with that return address, or 0. `rbp` as it is there.
  NodeId find(Address slot, Address returns_to, Address rbp) noexcept {
    if (resting_ != 0) [[unlikely]] {
      --resting_;
      return 0;
    }
    unsigned at = child(root(slot), returns_to);
    while (at != kNone) {
      const Segment& segment = segments_[at];
      const Address* const value = values_ + segment.first;
      const std::uint16_t* const offset = offsets_ + segment.first;
      unsigned i = 0;
      for (; i + 4 <= segment.count; i += 4) {
        const Address differs =
            (load(slot, offset[i]) ^ value[i]) | (load(slot, offset[i + 1]) ^ value[i + 1]) |
            (load(slot, offset[i + 2]) ^ value[i + 2]) | (load(slot, offset[i + 3]) ^ value[i + 3]);
        if (differs != 0) return 0;
      }
      for (; i < segment.count; ++i)
        if (load(slot, offset[i]) != value[i]) return 0;
      if (segment.leaf != 0) {
        if (segment.needs_rbp && segment.rbp != rbp) return 0;
        ++hits_;
        return segment.leaf;
      }
      at = child(segment.branch, load(slot, segment.branch_offset));
    }
    return 0;
  }

  /// Remembers a stack after find() did not know it: its words, the first of which is the event's own slot.
  void put(const Word* words, unsigned count, bool needs_rbp, Address rbp, NodeId node) noexcept;

 private:
  static constexpr unsigned kNone = 0xffff;
  static constexpr unsigned kWords = 5760;
  static constexpr unsigned kSegments = 1024;
  static constexpr unsigned kChildren = 2048;  // a power of two
  static constexpr unsigned kLeastHits = 4;    // for a stack that is put
  static constexpr unsigned kRest = 20'000;    // events

  struct Segment {
    std::uint16_t first, count;  // words
    std::uint16_t branch_offset;
    bool needs_rbp;
    std::uint32_t branch;  // children are found by it
    NodeId leaf;           // 0: it branches
    Address rbp;
  };
  struct Child {
    Address value;
    std::uint32_t branch;
    std::uint16_t segment;  // plus 1; 0: free
  };

  static Address load(Address slot, std::uint16_t offset) noexcept;
  static std::uint32_t root(Address slot) noexcept {
    return 0x80000000u | static_cast<std::uint32_t>(slot >> 3);
  }
  static unsigned hash(std::uint32_t branch, Address value) noexcept {
    return static_cast<unsigned>(
        (value + std::uint64_t{branch} * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull >> 53);
  }
  unsigned child(std::uint32_t branch, Address value) const noexcept {
    for (unsigned i = hash(branch, value);; i = (i + 1) & (kChildren - 1)) {
      const Child& child = children_[i];
      if (child.segment == 0) return kNone;
      if (child.branch == branch && child.value == value) return child.segment - 1u;
    }
  }
  void add_child(std::uint32_t branch, Address value, unsigned segment) noexcept;
  unsigned add_segment(const Word* words, unsigned count, Address slot, bool needs_rbp, Address rbp,
                       NodeId node) noexcept;

  unsigned used_words_ = 0, used_segments_ = 0, used_children_ = 0;
  std::uint32_t next_branch_ = 1;
  std::uint32_t hits_ = 0, puts_ = 0, resting_ = 0;
  Address values_[kWords];
  std::uint16_t offsets_[kWords];  // of a slot from the event's, in 8 bytes
  Segment segments_[kSegments];
  Child children_[kChildren];
};

// Other functions' frames are read here, which sanitizers take for a mistake.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif
inline Address
StackCache::load(Address slot, std::uint16_t offset) noexcept {
  return *reinterpret_cast<const volatile Address*>(slot + 8 * Address{offset});
}

}  // namespace memoir::stacks
