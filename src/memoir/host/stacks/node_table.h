// SPDX-License-Identifier: Apache-2.0
//
// The tree of all stacks seen: (node of the caller, frame) -> node. One table for all threads, without locks.
//
//   slot   first: frame << 16 | caller's low 16 bits      taken by compare-and-swap from 0
//          second: caller's high 16 bits << 32 | node     0 until its owner has filled it
//
// Its memory is bounded: a table that is three quarters full is emptied, and frames get new numbers. A number
// is never given twice, so those that somebody still holds stay true.
#pragma once

#include <atomic>
#include <cstddef>

#include "memoir/host/stacks/frame.h"

namespace memoir::stacks {

class NodeTable {
 public:
  struct Found {
    NodeId node;
    bool fresh;  // nobody had it: the caller writes down what it means
  };

  /// Maps 2^slots_log2 slots of 16 bytes. False when there is no memory. Not thread-safe, as is clear().
  bool start(unsigned slots_log2) noexcept;
  bool ready() const noexcept { return slots_ != nullptr; }

  Found intern(NodeId caller, Frame frame) noexcept {
    const std::uint64_t first = frame << 16 | (caller & 0xffff);
    const std::uint64_t upper = static_cast<std::uint64_t>(caller >> 16) << 32;
    Slot* slot = &slots_[hash(caller, frame) >> shift_];
    const std::uint64_t seen = slot->first.load(std::memory_order_acquire);
    if (seen == first) [[likely]] {
      const std::uint64_t second = slot->second.load(std::memory_order_acquire);
      if (second != 0 && (second & ~std::uint64_t{0xffffffff}) == upper &&
          slot->first.load(std::memory_order_relaxed) == first) [[likely]]
        return {static_cast<NodeId>(second), false};
    }
    return intern_slowly(caller, frame);
  }

  /// Forgets all frames; the numbers go on. While others intern, some of theirs may be forgotten too.
  void forget() noexcept;
  /// Forgets all frames and numbers: in a child of fork(), whose trace is another.
  void clear() noexcept;
  NodeId count() const noexcept { return next_.load(std::memory_order_relaxed) - 1; }

 private:
  struct Slot {
    std::atomic<std::uint64_t> first, second;
  };
  static std::uint64_t hash(NodeId caller, Frame frame) noexcept {
    std::uint64_t mixed = (frame ^ static_cast<std::uint64_t>(caller) << 32) * 0x9e3779b97f4a7c15ull;
    mixed ^= mixed >> 29;
    return mixed * 0xbf58476d1ce4e5b9ull;
  }
  Found intern_slowly(NodeId caller, Frame frame) noexcept;

  Slot* slots_ = nullptr;
  unsigned shift_ = 63;
  std::size_t mask_ = 0;
  std::atomic<std::size_t> used_{0};
  std::atomic<NodeId> next_{1};
};

}  // namespace memoir::stacks
