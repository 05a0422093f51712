// SPDX-License-Identifier: Apache-2.0
//
// The tree of all stacks seen: (node of the caller, frame) -> node. One table for all threads, without locks.
//
// A node is found by a hash of all its frames, which is known before the numbers of its callers are: so the
// processor looks for the frames of a stack at once, and not for each after the one before it. What is found
// is compared with the caller's number and the frame.
//
//   slot   first: frame << 16 | caller's low 16 bits      taken by compare-and-swap from 0
//          second: caller's high 16 bits << 32 | node     0 until its owner has filled it
//
// Its memory is bounded: a table that is three quarters full is emptied, and frames get new numbers. A number
// is never given twice, so those that somebody still holds stay true. A node may have more than one: after
// the table was emptied, and when threads meet a slot whose owner was stopped before it filled it.
#pragma once

#include <atomic>
#include <cstddef>

#include "memoir/process/stacks/frame.h"

namespace memoir::stacks {

/// A node, for those who go on inwards from it.
struct Node {
  NodeId id = 0;
  std::uint32_t path = 0;  // a hash of its frames
};

class NodeTable {
 public:
  /// Maps 2^slots_log2 slots of 16 bytes. False when there is no memory. Not thread-safe, as is clear().
  bool start(unsigned slots_log2) noexcept;
  bool ready() const noexcept { return slots_ != nullptr; }

  /// `node` becomes that of `frame` inside of it. True when nobody had it: the caller writes down what it
  /// means. (Inlined, so that the path does not wait for the number.)
  __attribute__((always_inline)) bool intern(Node& node, Frame frame) noexcept {
    const NodeId caller = node.id;
    const std::uint64_t first = frame << 16 | (caller & 0xffff);
    const std::uint64_t upper = static_cast<std::uint64_t>(caller >> 16) << 32;
    node.path = path_of(node.path, frame);
    const Slot* const slot = &slots_[node.path >> shift_];
    const std::uint64_t seen = slot->first.load(std::memory_order_acquire);
    if (seen == first) [[likely]] {
      const std::uint64_t second = slot->second.load(std::memory_order_acquire);
      if (second != 0 && (second & ~std::uint64_t{0xffffffff}) == upper &&
          slot->first.load(std::memory_order_relaxed) == first) [[likely]] {
        node.id = static_cast<NodeId>(second);
        return false;
      }
    }
    const Found found = intern_slowly(caller, node.path, frame);
    node.id = found.node;
    return found.fresh;
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
  static std::uint32_t path_of(std::uint32_t outer, Frame frame) noexcept {
    std::uint64_t mixed = (frame ^ static_cast<std::uint64_t>(outer) << 32) * 0x9e3779b97f4a7c15ull;
    mixed ^= mixed >> 29;
    return static_cast<std::uint32_t>(mixed * 0xbf58476d1ce4e5b9ull >> 32);
  }
  struct Found {
    NodeId node;
    bool fresh;
  };
  Found intern_slowly(NodeId caller, std::uint32_t path, Frame frame) noexcept;

  Slot* slots_ = nullptr;
  unsigned shift_ = 31;
  std::size_t mask_ = 0;
  std::atomic<std::size_t> used_{0};
  std::atomic<NodeId> next_{1};
};

}  // namespace memoir::stacks
