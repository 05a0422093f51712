// SPDX-License-Identifier: Apache-2.0
//
// The exact stack of each allocation of one thread, cheaply: the walker remembers the stack that it found
// last, as the places in memory where its return addresses stand.
//
//   outermost                                         innermost, of the last event
//   slots_   0x7ffe..f8  0x7ffe..b8  0x7ffe..58  0x7ffe..18
//   returns_ __libc_sta  main+0x2f   parse+0x81  node+0x12
//
// From the new event's frame it goes outwards by the unwind tables' rules until it meets a slot of the last
// stack with the same return address. If all slots further out hold what they held, then the rest of the
// stack is the same: the place of each slot follows from the return addresses (and values of rbp) further in,
// which are the same. So a stack that recurs costs one comparison a frame, a new one a rule for each frame
// that differs, and none is guessed.
//
// Code without unwind tables, as it is made at run time, is followed by its frame pointers where they hold:
// the pointer lies further out on the stack, a call stands before the return address next to it, and it is no
// call of a function that has a table and would be missing.
//
// Not thread-safe; never throws, allocates or locks. It reads the stack between the event's frame and the
// stack's end alone. On another stack than the thread's (coroutines, signal stacks) it reads through the
// kernel, which checks.
#pragma once

#include <cstdint>

#include "memoir/process/stacks/stack_cache.h"
#include "memoir/process/stacks/stack_tables.h"

namespace memoir::stacks {

class StackWalker {
 public:
  static constexpr unsigned kMost = 256;             // frames of a stack that is kept whole
  static constexpr unsigned kEnd = kMost / 2;        // frames of each end of one that is not
  static constexpr unsigned kMostWalked = 1u << 20;  // to find the outer end
  static constexpr unsigned kMostDependencies = kMost + 32;
  static constexpr unsigned kPassedOver = 8;

  /// Where an event came from: the place of the return address into the program, and rbp as it was there.
  struct Entry {
    Address slot;
    Address rbp;
  };
  /// A node that this walk made: whoever writes the stack writes these first.
  struct Fresh {
    NodeId node, caller;
    Frame frame;
  };

  /// `begin` to `end`: the thread's own stack, where it may be read from the innermost frame to its end.
  void start(StackTables& tables, Address begin, Address end) noexcept {
    tables_ = &tables;
    begin_ = begin;
    end_ = end & ~Address{7};
    depth_ = inner_ = 0;
    deep_ = false;
    cache_.clear();
  }

  NodeId capture(const Entry& entry) noexcept {
    fresh_count_ = 0;
    found_ = 0;
    if (epoch_ != tables_->epoch()) [[unlikely]]
      return walk(entry);
    // Where stacks alternate, the one that was walked last is another one most of the time.
    if (passed_over_ < kPassedOver || cache_.is_resting()) {
      if (depth_ != 0 && slots_[depth_ - 1] == entry.slot && !deep_) {
        const unsigned top = depth_ - 1;
        if (!(infos_[top].needs_rbp && infos_[top].rbp != entry.rbp) && holds(depth_) == depth_) [[likely]] {
          passed_over_ = 0;
          return infos_[top].node.id;
        }
      }
      ++passed_over_;
    }
    if (entry.slot - begin_ < end_ - begin_) [[likely]] {
      if (const NodeId node =
              cache_.find(entry.slot, *reinterpret_cast<const Address*>(entry.slot), entry.rbp))
        return found_ = node;
    }
    passed_over_ = 0;
    return walk(entry);
  }

  /// As capture(), from the unwind tables and the last stack alone: for checks.
  NodeId recapture(const Entry& entry) noexcept {
    fresh_count_ = 0;
    found_ = 0;
    return walk(entry);
  }
  /// Of the capture() before.
  const Fresh* fresh() const noexcept { return fresh_; }
  unsigned fresh_count() const noexcept { return fresh_count_; }
  /// Whether the capture() before found the stack among those that came before the last; last_frames() does
  /// not have it.
  bool was_cached() const noexcept { return found_ != 0; }
  /// The stack that capture() answers, innermost first, written to `frames` (room for kMost + 2): for checks.
  unsigned last_frames(Frame* frames) const noexcept;
  /// The same frames, each with the place of its return address; 0 where that is not known. Valid until the
  /// next call. After recapture(), where the stack was cached.
  const StackCache::Word* last_places(unsigned& count) noexcept;
  /// Where the thread's own stack ends.
  Address stack_end() const noexcept { return end_; }
  /// Where the return address stands that is frame `number` of it from the innermost one. 0: not known
  /// (a stack too deep to be kept whole, or one that was walked through the kernel).
  Address last_slot(unsigned number) const noexcept {
    return careful_ == 0 && inner_ == 0 && number < depth_ ? slots_[depth_ - 1 - number] : 0;
  }

  // Counts since the start.
  std::uint64_t walks() const noexcept { return walks_; }

 private:
  struct Info {
    Address rbp;         // in the function that the return address leads to
    Address rbp_source;  // where that was read; 0: rbp as it was at the event
    Address cfa_at;      // where the step outwards from here read the CFA; 0: it was computed
    Node node;
    bool needs_rbp;  // frames further out were found by it
    bool reads_rbp;  // the step outwards from here used rbp
    bool restores;   // the step outwards from here read the caller's rbp from the stack
  };
  /// A word that is not a return address and must not have changed: the frames outside of `valid` were found
  /// by it, in the step outwards from `reader`.
  struct Dependency {
    Address slot, value;
    unsigned valid, reader;
  };

  /// One step outwards: where the caller's return address is, and its rbp.
  struct Step {
    enum class Result { kCaller, kOutermost, kCut, kElsewhere } result;
    Cut why;
    Address slot, rbp, rbp_source, cfa_at;
    bool reads_rbp, restores;
  };
  class CheckedMemory;

  /// Of the outermost `count` frames, how many stand as they stood, counted from the innermost of them on.
  unsigned holds(unsigned count) const noexcept;
  NodeId walk(const Entry& entry) noexcept;
  NodeId walk_carefully(const Entry& entry) noexcept;
  void step(const Info& from, Address slot, Address pc, Step& next) const noexcept;
  void step_by_pointer(Address slot, Address pc, Step& next) const noexcept;
  NodeId keep_whole(unsigned outer, unsigned fresh, bool met) noexcept;
  NodeId keep_ends(unsigned outer, unsigned fresh) noexcept;
  NodeId walk_to_the_end(unsigned walked, Step next) noexcept;
  void place(unsigned outer, unsigned first, unsigned last, bool met) noexcept;
  NodeId above_the_gap() noexcept;
  void intern(Node& node, Frame frame) noexcept;
  void depend(const Dependency& dependency) noexcept;
  void root(Frame frame) noexcept;

  void remember(NodeId node) noexcept;

  StackTables* tables_ = nullptr;
  Address begin_ = 0, end_ = 0;
  unsigned depth_ = 0;
  unsigned inner_ = 0;  // frames of new_returns_ that the last stack has inside of those kept, beyond a gap
  std::uint32_t epoch_ = 0;
  unsigned careful_ = 0;  // frames of new_returns_ that are the whole last stack
  bool deep_ = false;     // what is kept are the outer frames of a stack too deep to be kept whole
  unsigned dependency_count_ = 0;
  unsigned fresh_count_ = 0;
  std::uint64_t walks_ = 0;
  Node root_;  // the caller of the outermost frame: 0, or a cut
  Frame root_frame_ = 0;

  // Outermost first.
  Address slots_[kMost];
  Address returns_[kMost];
  Info infos_[kMost];
  Dependency dependencies_[kMostDependencies];

  // The walk under way, innermost first.
  Address new_slots_[kMost];
  Address new_returns_[kMost];
  Info new_infos_[kMost];

  unsigned passed_over_ = 0;  // events since the last stack, or a walk, gave one
  NodeId found_ = 0;          // what the cache said last; 0 when it did not
  StackCache cache_;
  StackCache::Word words_[StackCache::kMostWords];
  Fresh fresh_[kMost + 2];
  alignas(8) unsigned char copied_[2 * 4096];  // of a stack that is not the thread's own
};

}  // namespace memoir::stacks
