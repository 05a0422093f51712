// SPDX-License-Identifier: Apache-2.0
//
// Python's code objects by their addresses: each gets a number that no other one ever has, although
// interpreters use addresses again. Who frees a code object says so with remove(). Shared by all threads,
// without locks; memory is fixed.
//
//   frame in a stack   number << 16 | line, counted from the first of the code object
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memoir/process/stacks/frame.h"
#include "memoir/process/stacks/python_layout.h"

namespace memoir::stacks {

class CodeTable {
 public:
  struct Code {
    std::atomic<Address> address{0};         // 0: free; 1: was removed
    std::atomic<std::uint32_t> number{0};    // 0 while it is being added
    std::atomic<std::uint32_t> function{0};  // strings of the trace, for whoever writes it; 0: not yet
    std::atomic<std::uint32_t> file{0};
  };
  static constexpr std::uint32_t kNoLine = 0xffff;   // an instruction of the interpreter's own
  static constexpr std::uint32_t kFarLine = 0xfffe;  // too far from the first line to be told
  static constexpr std::uint32_t kBefore = 4096;  // lines before the first of a code object that can be told

  /// False without memory. Not thread-safe.
  bool start() noexcept;
  /// nullptr when there is no room.
  Code* find(Address code) noexcept;
  void remove(Address code) noexcept;
  /// Goes up with each remove(): what was found of addresses before may mean another one.
  std::uint32_t removals() const noexcept { return removals_.load(std::memory_order_acquire); }

  /// The frame of an instruction of `code`, which lives: the distance of the instruction from the first one,
  /// in instructions. Without room, a cut.
  Frame frame(const PythonLayout& layout, Address code, std::int64_t instruction) noexcept;
  /// Whether such a frame is none of the source's: the interpreter puts some between, which nobody sees.
  static bool is_hidden(Frame frame) noexcept {
    return kind_of(frame) == FrameKind::kPython && (payload_of(frame) & 0xffff) == kNoLine;
  }
  /// The source line of such a frame; 0: unknown.
  static std::uint32_t line(const PythonLayout& layout, Address code, Frame frame) noexcept;

  /// The strings of the trace mean nothing any more.
  void forget_strings() noexcept;

 private:
  static constexpr unsigned kLog2 = 15;
  static constexpr unsigned kLinesLog2 = 15;
  static constexpr std::uint32_t kMostNumber = (1u << 24) - 1;

  Code* codes_ = nullptr;
  std::atomic<std::uint64_t>* lines_ = nullptr;  // number << 32 | instruction << 16 | line
  std::atomic<std::uint32_t> next_{1}, removals_{0};
};

/// The line of an instruction as the code object's table has it; 0: none.
std::uint32_t find_python_line(const PythonLayout& layout, Address code, std::int64_t instruction) noexcept;

/// Copies a str's text as UTF-8, cut to `room` bytes. Returns how many; 0 if it is not a str
/// in the compact form.
std::size_t copy_python_text(const PythonLayout& layout, Address text, char* to, std::size_t room) noexcept;

}  // namespace memoir::stacks
