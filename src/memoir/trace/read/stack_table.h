// SPDX-License-Identifier: Apache-2.0
//
// What a file defines once and its events refer to: strings, modules, frames, stacks (nodes: a frame above a
// parent node), symbols. They come in any order; resolve() makes sites of the nodes.
//
// A site's id is the same in every run of the same build: what goes into it of a native frame is the module's
// build id (or, without one, its file's name) and the frame's offset, of a Python frame function, file and
// line, of any other its name, as child_site() has it. Symbols change names, never ids.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memoir/base/site.h"
#include "memoir/trace/file/block_decoder.h"
#include "memoir/trace/process_record.h"
#include "memoir/trace/read/site_table.h"
#include "memoir/trace/stack_frame.h"

namespace memoir {

class StackTable {
 public:
  /// The site of what PyTorch allocates outside of every operator, as its recorders name it.
  static constexpr std::string_view kNoOperatorName = "(no operator)";
  static constexpr SiteId kNoOperator = child_site(kNoSite, kNoOperatorName);

  /// Takes a definition. `most`: the bytes that hold all definitions, so that no dense id is above it. Throws
  /// Error for what cannot be.
  void define(const BlockDecoder::Item& item, Tick time, std::uint64_t most);
  /// Makes sites of the nodes that were defined since the last call.
  void resolve(SiteTable& sites);

  /// The site of a node; kNoSite for 0 and for one that nobody defined.
  SiteId site(std::uint32_t node) const noexcept {
    return node < nodes_.size() ? nodes_[node].site : kNoSite;
  }
  /// The site of the node's operators alone, as the recorder of tensors has it; where there are none that of
  /// no operator. Once keep_operators() was called, before resolve().
  SiteId operators(std::uint32_t node) const noexcept {
    return node < nodes_.size() && nodes_[node].operators != kNoSite ? nodes_[node].operators : kNoOperator;
  }
  void keep_operators() noexcept { keeps_operators_ = true; }
  bool keeps_operators() const noexcept { return keeps_operators_; }
  std::string_view string(std::uint64_t id) const noexcept;
  std::vector<ProcessRecord::Module> modules() const;
  /// Whether any native frame has a name.
  bool has_symbols() const noexcept { return !symbols_.empty(); }
  /// The path of a native frame's module; empty for others.
  std::string_view module_of(std::uint32_t frame) const noexcept;
  /// Of each native frame: the number of its module (0: code that lies in none), and its offset there.
  std::vector<NativeAddress> native_addresses() const;
  /// Functions of one native frame, the innermost: a file may say that thousands are inlined into one, and
  /// have it in every stack.
  static constexpr std::size_t kMostInlined = 32;
  /// Appends the frame with what is inlined into it, outermost first.
  void append_frames(std::uint32_t frame, std::vector<StackFrame>& to) const;

 private:
  struct Module {
    ProcessRecord::Module module;
    std::uint32_t path = 0;  // a string
    std::uint64_t hash = 0;  // of what it is known by, 0: not asked for yet
  };
  struct Frame {
    FrameKind kind = FrameKind::kNone;  // kNone: not defined
    std::uint32_t name = 0;             // a string; kNative: the module
    std::uint32_t file = 0;             // kPython: a string
    std::uint64_t at = 0;               // kPython: the line; kNative: the offset
    std::uint64_t hash = 0;             // of its name in site ids; 0 while it is not resolved
  };
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t frame = 0;  // 0: not defined
    SiteId site = kNoSite;
    SiteId operators = kNoSite;
  };
  struct Line {
    std::uint32_t function = 0, file = 0, line = 0;
  };

  template <class T>
  T& at(std::vector<T>& of, std::uint64_t id, std::uint64_t most, const char* what);
  void define_module(const BlockDecoder::Item& item, Tick time);
  void define_stack(const BlockDecoder::Item& item, std::uint64_t most);
  std::string_view module_path(std::uint32_t module) const noexcept;
  const std::vector<Line>* lines_of(const Frame& frame) const;
  std::string_view name_of(const Frame& frame);
  std::uint64_t hash_of(const Frame& frame);
  std::uint64_t hash_of_string(std::uint32_t id);

  std::deque<std::string> texts_;
  std::vector<std::string_view> strings_;  // by id
  std::vector<std::uint64_t> hashes_;      // of strings, 0: not asked for yet
  std::unordered_map<std::uint64_t, Module, KeyedHash> modules_;
  std::vector<Frame> frames_;
  std::deque<std::string_view> names_;  // of frames
  std::deque<std::string> composed_;    // what of those stands in no string
  std::vector<Node> nodes_;
  using Lines = std::unordered_map<std::uint64_t, std::vector<Line>, KeyedHash>;  // by offset
  std::unordered_map<std::uint64_t, Lines, KeyedHash> symbols_;                   // by module
  std::size_t resolved_frames_ = 0;
  std::size_t resolved_nodes_ = 0;
  bool has_new_symbols_ = false;
  bool keeps_operators_ = false;
};

}  // namespace memoir
