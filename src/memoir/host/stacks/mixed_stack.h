// SPDX-License-Identifier: Apache-2.0
//
// One thread's stacks of three kinds of frames: native ones, as the walker finds them, Python's between them,
// and operator scopes, each where it stands on the C stack.
//
//   native      main   PyRun..   eval     call   add_Tensor   at::add   posix_memalign
//   Python                        main.py:3
//   operators                                                  aten::add
//   mixed       main   PyRun..   eval  main.py:3  call  add_Tensor  at::add  aten::add  posix_memalign
//
// The three chains are known by a number each; what they are together was made once, and is looked up after
// that. Not thread-safe; never throws, allocates or locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "memoir/host/stacks/name_table.h"
#include "memoir/host/stacks/python_frames.h"
#include "memoir/host/stacks/stack_walker.h"

namespace memoir::stacks {

/// What the threads of a process share for it.
struct MixedTables {
  static constexpr unsigned kNodesLog2 = 18;  // 4 MiB

  Python python;
  NameTable names;
  NodeTable mixed;  // what the trace has; the walkers' own nodes are only keys then
  std::atomic<std::uint32_t> epoch{1};

  /// False without memory. Not thread-safe.
  bool start() noexcept { return python.codes.start() && names.start() && mixed.start(kNodesLog2); }
  /// Frames, or what was written of them, mean something else from now on.
  void forget() noexcept {
    mixed.forget();
    epoch.fetch_add(1, std::memory_order_acq_rel);
  }
  void after_fork() noexcept {
    python.codes.forget_strings();
    names.unlock_after_fork();
    mixed.clear();
    epoch.fetch_add(1, std::memory_order_acq_rel);
  }
};

class MixedStack {
 public:
  static constexpr unsigned kMostScopes = 128;  // of deeper ones, the outermost

  using Fresh = StackWalker::Fresh;

  void start() noexcept {
    python_.forget();
    scope_count_ = 0;
    epoch_ = 0;
  }
  /// The thread begins or ends an operator. `place`: on its C stack, in the frame of the function that does.
  void enter(MixedTables& tables, NodeTable& keys, std::string_view name, Address place,
             Address end) noexcept;
  void leave() noexcept {
    if (scope_count_ > 0) --scope_count_;
  }
  void clear_scopes() noexcept { scope_count_ = 0; }

  /// The stack of an event whose native frames `walker` has just found as `native`. `define(fresh, count)` is
  /// told of new nodes, callers first.
  template <class Define>
  NodeId capture(MixedTables& tables, NodeTable& keys, StackWalker& walker, const StackWalker::Entry& entry,
                 NodeId native, Define define) noexcept {
    if (const std::uint32_t epoch = tables.epoch.load(std::memory_order_acquire); epoch != epoch_)
        [[unlikely]] {
      epoch_ = epoch;
      for (Known& known : known_) known = {};
    }
    NodeId python = 0;
    if (tables.python.is_on()) python = python_.capture(tables.python, entry.slot, walker.stack_end(), keys);
    const NodeId scopes = scope_count_ == 0 ? 0 : scopes_[kept() - 1].node;
    Known& known = known_[index(native, python, scopes)];
    if (known.native == native && known.python == python && known.scopes == scopes && known.mixed != 0)
        [[likely]]
      return known.mixed;
    if (walker.was_cached()) walker.recapture(entry);
    known = {native, python, scopes, merge(tables, walker, python != 0, define)};
    return known.mixed;
  }

  /// Of the Python frames of the last capture: the code object that such a frame is of; 0: none of them.
  Address code_of(Frame frame) const noexcept {
    for (unsigned i = python_.count(); i-- > 0;)
      if (python_[i].shown == frame) return python_[i].code;
    return 0;
  }

 private:
  static constexpr unsigned kKnown = 512;

  struct Known {
    NodeId native, python, scopes, mixed;
  };
  struct Scope {
    Address place;
    std::uint32_t name;
    NodeId node;
  };
  static unsigned index(NodeId native, NodeId python, NodeId scopes) noexcept {
    const std::uint64_t mixed = (native + std::uint64_t{python} * 0x9e3779b97f4a7c15ull) ^
                                std::uint64_t{scopes} * 0xbf58476d1ce4e5b9ull;
    return static_cast<unsigned>(mixed * 0x94d049bb133111ebull >> 55);
  }
  unsigned kept() const noexcept { return scope_count_ < kMostScopes ? scope_count_ : kMostScopes; }

  template <class Define>
  NodeId merge(MixedTables& tables, StackWalker& walker, bool with_python, Define define) noexcept;

  PythonFrames python_;
  unsigned scope_count_ = 0;
  std::uint32_t epoch_ = 0;
  Scope scopes_[kMostScopes];
  Known known_[kKnown];
};

inline void MixedStack::enter(MixedTables& tables, NodeTable& keys, std::string_view name, Address place,
                              Address end) noexcept {
  if (scope_count_ < kMostScopes) {
    Scope& scope = scopes_[scope_count_];
    scope.place = place;
    scope.name = tables.names.find(name);
    const NodeId caller = scope_count_ == 0 ? 0 : scopes_[scope_count_ - 1].node;
    const NodeId named = keys.intern(caller, special_frame(FrameKind::kOperator, scope.name)).node;
    // Where it stands is a part of what it is known by.
    scope.node =
        keys.intern(named, special_frame(FrameKind::kOperator, Address{1} << 39 | (end - place))).node;
  }
  ++scope_count_;
}

template <class Define>
NodeId MixedStack::merge(MixedTables& tables, StackWalker& walker, bool with_python, Define define) noexcept {
  constexpr unsigned kTold = 64;
  Fresh fresh[kTold];
  unsigned fresh_count = 0;
  NodeId caller = 0;
  const auto add = [&](Frame frame) {
    const NodeTable::Found found = tables.mixed.intern(caller, frame & kFrameMask);
    if (found.fresh) {
      fresh[fresh_count++] = {found.node, caller, frame & kFrameMask};
      if (fresh_count == kTold) define(fresh, fresh_count), fresh_count = 0;
    }
    caller = found.node;
  };
  unsigned count = 0;
  const StackCache::Word* const natives = walker.last_places(count);  // innermost first
  unsigned python = 0, scope = 0;                                     // the next of each, outermost first
  const unsigned pythons = with_python ? python_.count() : 0, scopes = kept();
  if (with_python && python_.is_cut()) add(cut_frame(Cut::kTooManyPython));
  const auto add_above = [&](Address slot) {
    for (;;) {
      const Address at = python < pythons ? python_[python].place : 0;
      const Address scope_at = scope < scopes ? scopes_[scope].place : 0;
      if (at <= slot && scope_at <= slot) return;
      if (at >= scope_at) {
        const PythonFrames::Seen& seen = python_[python];
        if (seen.code != 0 && !CodeTable::is_hidden(seen.shown)) add(seen.shown);
        ++python;
      } else {
        add(special_frame(FrameKind::kOperator, scopes_[scope].name));
        ++scope;
      }
    }
  };
  for (unsigned i = count; i-- > 0;) {
    add(natives[i].value);
    if (natives[i].slot != 0) add_above(natives[i].slot);
  }
  add_above(0);
  if (fresh_count != 0) define(fresh, fresh_count);
  return caller;
}

}  // namespace memoir::stacks
