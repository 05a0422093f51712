// SPDX-License-Identifier: Apache-2.0
//
// Stacks of one thread that came before, by the words that stand in memory when they come again: a tree that
// branches where two stacks first differ.
//
//   event's place, return address -> | slot = word | slot = word | by the word in slot -> | ... | leaf: node
//
// A hit has compared every word that its stack was found by, so it is not a guess (see stack_walker.h).
// What it costs is the branches that a processor cannot foresee, so words are compared four at a time.
// Memory is fixed: a full cache is emptied. One that hits too rarely to pay for itself, as with a compiler's
// hundred thousand stacks, rests for a while. Not thread-safe.
#pragma once

#include <cstdint>

#include "memoir/process/stacks/frame.h"
#include "memoir/process/stacks/unwind_rule.h"

namespace memoir::stacks {

class StackCache {
 public:
  static constexpr unsigned kMostWords = 300;  // of one stack

  /// A word of memory that a stack was found by.
  struct Word {
    Address slot, value;
  };

  void clear() noexcept;
  /// Whether find() would look at all.
  bool is_resting() const noexcept { return resting_ != 0; }

  /// The stack of an event at `slot` with that return address, or 0. `rbp` as it is there.
  NodeId find(Address slot, Address returns_to, Address rbp) noexcept {
    if (resting_ != 0) [[unlikely]] {
      --resting_;
      return 0;
    }
    const Segment* segment = &segments_[place(root(slot), returns_to)];
    while (segment->key != 0) {
      const std::uint64_t* const word = words_ + segment->first;
      const int last = segment->count - 1;
      for (int i = 0; i <= last; i += 4) {
        // Where there are fewer than four, the last one is compared again.
        const Address differs = difference(slot, word[i]) |
                                difference(slot, word[i + 1 < last ? i + 1 : last]) |
                                difference(slot, word[i + 2 < last ? i + 2 : last]) |
                                difference(slot, word[i + 3 < last ? i + 3 : last]);
        if (differs != 0) return 0;
      }
      if (segment->is_leaf) {
        if (segment->needs_rbp && word[segment->count] != rbp) return 0;
        ++hits_;
        return segment->next;
      }
      segment = &segments_[place(segment->next, load(slot, segment->branch_offset))];
    }
    return 0;
  }

  /// Remembers a stack after find() did not know it: its words, the first of which is the event's own slot.
  void put(const Word* words, unsigned count, bool needs_rbp, Address rbp, NodeId node) noexcept;

 private:
  static constexpr unsigned kWords = 7168;
  static constexpr unsigned kSegments = 2048;  // a power of two
  static constexpr unsigned kLeastHits = 4;    // for a stack that is put
  static constexpr unsigned kRest = 20'000;    // events
  static constexpr unsigned kValueBits =
      48;  // of a word; above them its slot's distance from the event's, in 8 bytes

  /// Words that follow each other in all stacks that hold them, found by the word before them.
  struct Segment {
    Address value;        // that word
    std::uint32_t key;    // of the branch before it, or root(); 0: nothing is here
    std::uint32_t next;   // of a leaf the node, else the branch behind it
    std::uint16_t first;  // of words_
    std::uint16_t count;
    std::uint16_t branch_offset;
    bool is_leaf;
    bool needs_rbp;  // of a leaf: which stands behind its words
  };

  static Address load(Address slot, std::uint64_t offset) noexcept;
  static Address difference(Address slot, std::uint64_t word) noexcept {
    return load(slot, word >> kValueBits) ^ (word & ((std::uint64_t{1} << kValueBits) - 1));
  }
  static std::uint32_t root(Address slot) noexcept {
    return 0x80000000u | static_cast<std::uint32_t>(slot >> 3);
  }
  static unsigned hash(std::uint32_t key, Address value) noexcept {
    return static_cast<unsigned>(
        (value + std::uint64_t{key} * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull >> 53);
  }
  /// Where the segment behind that word is, or would be.
  unsigned place(std::uint32_t key, Address value) const noexcept {
    unsigned i = hash(key, value);
    while (segments_[i].key != 0 && (segments_[i].key != key || segments_[i].value != value))
      i = (i + 1) & (kSegments - 1);
    return i;
  }
  void add_leaf(std::uint32_t key, const Word* words, unsigned count, Address slot, bool needs_rbp,
                Address rbp, NodeId node) noexcept;

  unsigned used_words_ = 0, used_segments_ = 0;
  std::uint32_t next_branch_ = 1;
  std::uint32_t hits_ = 0, puts_ = 0, resting_ = 0;
  std::uint64_t words_[kWords];
  Segment segments_[kSegments];
};

// Other functions' frames are read here, which sanitizers take for a mistake.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif
inline Address
StackCache::load(Address slot, std::uint64_t offset) noexcept {
  return *reinterpret_cast<const volatile Address*>(slot + 8 * offset);
}

}  // namespace memoir::stacks
