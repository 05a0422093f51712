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
// The paths of nn.Modules are scopes too; where such a call stands only Python knows, so it is shown right
// before the first operator in it, or as far out as it was told.
//
// The three chains are known by a number each; what they are together was made once, and is looked up after
// that. Not thread-safe; never throws, allocates or locks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memoir/base/metadata.h"
#include "memoir/process/stacks/name_table.h"
#include "memoir/process/stacks/python_frames.h"
#include "memoir/process/stacks/stack_walker.h"

namespace memoir::stacks {

/// What three chains are together, for all threads, without locks: two places for each, the older one gives
/// way. One that is torn by two writers is not taken for one: its first word is mixed with its second.
class MixedCache {
 public:
  struct Key {
    NodeId native, python, scopes;
  };
  bool start() noexcept {
    if (entries_ == nullptr) entries_ = static_cast<Entry*>(map_metadata(sizeof(Entry) << kLog2));
    return entries_ != nullptr;
  }
  /// 0 where it is not known.
  NodeId find(const Key& key) const noexcept {
    const std::uint64_t chains = chains_of(key);
    const Entry* const entry = home(key);
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint64_t rest = entry[i].rest.load(std::memory_order_relaxed);
      if ((entry[i].mixed.load(std::memory_order_relaxed) ^ mix(rest)) == chains &&
          static_cast<NodeId>(rest >> 32) == key.scopes) [[likely]]
        return static_cast<NodeId>(rest);
    }
    return 0;
  }
  void put(const Key& key, NodeId node) noexcept {
    Entry* const entry = home(key);
    entry[1].mixed.store(entry[0].mixed.load(std::memory_order_relaxed), std::memory_order_relaxed);
    entry[1].rest.store(entry[0].rest.load(std::memory_order_relaxed), std::memory_order_relaxed);
    const std::uint64_t rest = node | std::uint64_t{key.scopes} << 32;
    entry[0].mixed.store(chains_of(key) ^ mix(rest), std::memory_order_relaxed);
    entry[0].rest.store(rest, std::memory_order_relaxed);
  }
  void forget() noexcept {
    for (std::size_t i = 0; i < std::size_t{1} << kLog2; ++i) {
      entries_[i].rest.store(0, std::memory_order_relaxed);
      entries_[i].mixed.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr unsigned kLog2 = 15;  // entries of 16 bytes: 512 KiB
  struct Entry {
    std::atomic<std::uint64_t> mixed, rest;
  };
  static std::uint64_t chains_of(const Key& key) noexcept {
    return key.native | std::uint64_t{key.python} << 32;
  }
  static std::uint64_t mix(std::uint64_t bits) noexcept { return bits * 0x9e3779b97f4a7c15ull; }
  Entry* home(const Key& key) const noexcept {
    const std::uint64_t hash = (chains_of(key) ^ mix(key.scopes)) * 0xbf58476d1ce4e5b9ull;
    return entries_ + ((hash ^ hash >> 32) * 0x94d049bb133111ebull >> (64 - kLog2) & ~std::size_t{1});
  }

  Entry* entries_ = nullptr;
};

/// What the threads of a process share for it.
struct MixedTables {
  static constexpr unsigned kNodesLog2 = 19;  // 8 MiB

  Python python;
  NameTable names;
  NodeTable mixed;  // what the trace has; the walkers' own nodes are only keys then
  MixedCache known;
  std::atomic<std::uint32_t> epoch{1};  // goes up when nodes of `mixed` mean something else

  /// False without memory. Not thread-safe.
  bool start() noexcept {
    return python.codes.start() && names.start() && mixed.start(kNodesLog2) && known.start();
  }
  /// Frames, or what was written of them, mean something else from now on.
  void forget() noexcept {
    mixed.forget();
    known.forget();
    epoch.fetch_add(1, std::memory_order_acq_rel);
  }
  void after_fork() noexcept {
    python.codes.forget_strings();
    names.unlock_after_fork();
    mixed.clear();
    known.forget();
    epoch.fetch_add(1, std::memory_order_acq_rel);
  }
};

class MixedStack {
 public:
  static constexpr unsigned kMostScopes = 128;  // of deeper ones, the outermost
  /// Names that modules leave to operators, which plans are matched by: a model may have more modules than
  /// there is room for.
  static constexpr std::uint32_t kKeptForOperators = 4096;

  using Fresh = StackWalker::Fresh;

  void start() noexcept {
    python_.forget();
    scope_count_ = 0;
  }
  /// The thread begins or ends a scope: an operator, or the call of a module. `place`: on its C stack, in the
  /// frame of the function that does.
  void enter(MixedTables& tables, NodeTable& keys, FrameKind kind, std::string_view name, Address place,
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
    NodeId python = 0;
    if (tables.python.is_on()) python = python_.capture(tables.python, entry.slot, walker.stack_end(), keys);
    const NodeId scopes = scope_count_ == 0 ? 0 : scopes_[kept() - 1].node.id;
    const MixedCache::Key key{native, python, scopes};
    if (const NodeId known = tables.known.find(key)) [[likely]]
      return known;
    if (walker.was_cached()) walker.recapture(entry);
    const NodeId node = merge(tables, walker, python != 0, define);
    tables.known.put(key, node);
    return node;
  }

  /// Of the Python frames of the last capture: the code object that such a frame is of; 0: none of them.
  Address code_of(Frame frame) const noexcept {
    for (unsigned i = python_.count(); i-- > 0;)
      if (python_[i].shown == frame) return python_[i].code;
    return 0;
  }

 private:
  struct Scope {
    Address place;
    std::uint32_t name : 31;
    std::uint32_t is_module : 1;
    Node node;

    bool is_shown() const noexcept { return name != 0 || is_module == 0; }
    Frame shown() const noexcept {
      return special_frame(is_module != 0 ? FrameKind::kModulePath : FrameKind::kOperator, name);
    }
  };
  /// Where scope i of `count` is shown.
  Address place_of(unsigned i, unsigned count) const noexcept {
    Address place = scopes_[i].place;
    while (scopes_[i].is_module != 0 && i + 1 < count) place = std::max(place, scopes_[++i].place);
    return place;
  }
  unsigned kept() const noexcept { return scope_count_ < kMostScopes ? scope_count_ : kMostScopes; }

  template <class Define>
  NodeId merge(MixedTables& tables, StackWalker& walker, bool with_python, Define define) noexcept;

  PythonFrames python_;
  unsigned scope_count_ = 0;
  Scope scopes_[kMostScopes];

  // The last stack that was merged, outermost first: where the next one is the same, so are its nodes.
  static constexpr unsigned kMostFrames = StackWalker::kMost + 2 + PythonFrames::kMost + 1 + kMostScopes;
  unsigned merged_count_ = 0;
  std::uint32_t epoch_ = 0;
  Frame merged_frames_[kMostFrames];
  Node merged_nodes_[kMostFrames];
};

inline void MixedStack::enter(MixedTables& tables, NodeTable& keys, FrameKind kind, std::string_view name,
                              Address place, Address end) noexcept {
  if (scope_count_ < kMostScopes) {
    Scope& scope = scopes_[scope_count_];
    scope.place = place;
    scope.is_module = kind == FrameKind::kModulePath;
    scope.name = tables.names.find(name, scope.is_module != 0 ? kKeptForOperators : 0) & 0x7fffffff;
    Node node = scope_count_ == 0 ? Node{} : scopes_[scope_count_ - 1].node;
    keys.intern(node, scope.shown());
    // Where it stands is a part of what it is known by.
    keys.intern(node, special_frame(FrameKind::kOperator, Address{1} << 39 | (end - place)));
    scope.node = node;
  }
  ++scope_count_;
}

template <class Define>
NodeId MixedStack::merge(MixedTables& tables, StackWalker& walker, bool with_python, Define define) noexcept {
  constexpr unsigned kTold = 64;
  Fresh fresh[kTold];
  unsigned fresh_count = 0;
  Node node;
  if (const std::uint32_t epoch = tables.epoch.load(std::memory_order_acquire); epoch != epoch_) {
    epoch_ = epoch;
    merged_count_ = 0;
  }
  unsigned depth = 0, same = merged_count_;
  const auto add = [&](Frame frame) {
    if (depth < same && merged_frames_[depth] == frame) {
      node = merged_nodes_[depth++];
      return;
    }
    same = 0;
    const NodeId caller = node.id;
    const bool is_fresh = tables.mixed.intern(node, frame & kFrameMask);
    merged_frames_[depth] = frame;
    merged_nodes_[depth++] = node;
    if (is_fresh) {
      fresh[fresh_count++] = {node.id, caller, frame & kFrameMask};
      if (fresh_count == kTold) define(fresh, fresh_count), fresh_count = 0;
    }
  };
  unsigned count = 0;
  const StackCache::Word* const natives = walker.last_places(count);  // innermost first
  unsigned python = 0, scope = 0;                                     // the next of each, outermost first
  const unsigned pythons = with_python ? python_.count() : 0, scopes = kept();
  if (with_python && python_.is_cut()) add(cut_frame(Cut::kTooManyPython));
  const auto add_above = [&](Address slot) {
    for (;;) {
      const Address at = python < pythons ? python_[python].place : 0;
      const Address scope_at = scope < scopes ? place_of(scope, scopes) : 0;
      if (at <= slot && scope_at <= slot) return;
      if (at >= scope_at) {
        const PythonFrames::Seen& seen = python_[python];
        if (seen.code != 0 && !CodeTable::is_hidden(seen.shown)) add(seen.shown);
        ++python;
      } else {
        if (scopes_[scope].is_shown()) add(scopes_[scope].shown());
        ++scope;
      }
    }
  };
  for (unsigned i = count; i-- > 0;) {
    add(natives[i].value);
    if (natives[i].slot != 0) add_above(natives[i].slot);
  }
  add_above(0);
  merged_count_ = depth;
  if (fresh_count != 0) define(fresh, fresh_count);
  return node.id;
}

}  // namespace memoir::stacks
