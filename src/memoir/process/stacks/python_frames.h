// SPDX-License-Identifier: Apache-2.0
//
// The Python frames that the calling thread is in, read from the interpreter's own structures: no function
// of its is called but the one that gives the thread's state, and nothing is locked. A thread's frames change
// by its own doing alone, with or without the GIL, so they can be read as they stand.
//
//   C stack      eval function's frame            eval function's frame
//                   C frame or entry frame           C frame or entry frame     <- a frame's place
//   Python       f (3.11 on: calls g, h there)    k
//
// Of each chain the frames seen last are remembered: one that stands as it stood costs three loads, and only
// those further in are read. Before anything is trusted, the first chains are read through the kernel, which
// cannot fault, and each code object must be one by its type. Not thread-safe.
#pragma once

#include "memoir/process/stacks/code_table.h"
#include "memoir/process/stacks/node_table.h"

namespace memoir::stacks {

/// What all threads share.
struct Python {
  PythonLayout layout;
  CodeTable codes;
  std::atomic<int> trials{32};  // chains that are still read through the kernel; below 0: not what it seems

  bool is_on() const noexcept { return layout.minor != 0; }
};

/// Has the interpreter tell `python.codes` of each code object that it frees, from now on: the type's
/// deallocator is replaced by one that calls it. Once in a process.
void watch_codes(Python& python) noexcept;

class PythonFrames {
 public:
  static constexpr unsigned kMost = 160;  // frames; of more, the innermost

  /// One frame of the chain that was read last.
  struct Seen {
    Address frame = 0;        // of the interpreter
    Address instruction = 0;  // (3.10: its index)
    Address code = 0;         // 0: no frame of Python's, only the start of a C function's
    Address place = 0;        // on the C stack: inside the frame of the C function that runs it
    Frame shown = 0;
    Node node;
    std::uint8_t mark = 0;
  };

  /// Reads the chain. `from` to `to`: where the thread's C stack is in use. Returns the chain as a node of
  /// `keys`, 0: there is none.
  NodeId capture(Python& python, Address from, Address to, NodeTable& keys) noexcept;
  /// Outermost first.
  unsigned count() const noexcept { return depth_; }
  const Seen& operator[](unsigned index) const noexcept { return seen_[index]; }
  /// Whether outer frames are left out.
  bool is_cut() const noexcept { return cut_; }
  void forget() noexcept { depth_ = 0; }

 private:
  struct Found {
    Address frame, instruction, code, place;
    std::uint8_t mark;
  };
  bool read(const Python& python, Address state, Address from, Address to) noexcept;
  static constexpr unsigned kNone = ~0u;
  unsigned first_changed(const PythonLayout& layout, unsigned index, Address frame,
                         Address place) const noexcept;
  NodeId keep(Python& python, NodeTable& keys) noexcept;

  unsigned depth_ = 0;
  unsigned found_count_ = 0;
  unsigned standing_ = 0;  // of seen_, from the outermost on, those that found_ goes on from
  std::uint32_t removals_ = 0;
  bool cut_ = false, found_cut_ = false;
  Seen seen_[kMost];
  Found found_[kMost];  // innermost first
};

}  // namespace memoir::stacks
