// SPDX-License-Identifier: Apache-2.0
//
// One frame of a stack in 48 bits, and a stack as a node of a tree: a frame and the node of its caller.
//
//   bit 47   46..40   39..0
//     0      return address                    a native frame
//     1      kind     payload                  anything else
#pragma once

#include <cstdint>

namespace memoir::stacks {

using Frame = std::uint64_t;
/// A stack: the number of its innermost frame's node. 0: no frame at all, or unknown.
using NodeId = std::uint32_t;

enum class FrameKind : std::uint8_t {
  kNative = 0,
  kCut = 1,         // frames are missing here; payload: why, a Cut
  kSignal = 2,      // what is inside runs in a signal's handler
  kPython = 3,      // payload: a code object and its line, see code_table.h
  kOperator = 4,    // payload: a name of a NameTable
  kModulePath = 5,  // the same: of an nn.Module
};

/// Why a stack is not whole.
enum class Cut : std::uint8_t {
  kNoTable = 1,     // code of a module without an unwind table, nor frame pointers that hold
  kOddTable = 2,    // an unwind table that says more than memoir follows
  kBroken = 3,      // the table led outside of the stack
  kTooDeep = 4,     // more than 256 frames: those between the two ends
  kOtherStack = 5,  // a stack that is not the thread's own, beyond what was read of it
  kInHandler = 6,   // a signal's handler that interrupted the recorder
  kTableFull = 7,
  kTooManyPython = 8,  // Python frames outside of the innermost ones
  kMadeCode = 9,       // code made at run time that keeps no frame pointers
};

inline constexpr Frame kFrameMask = (Frame{1} << 48) - 1;

inline constexpr Frame special_frame(FrameKind kind, std::uint64_t payload) noexcept {
  return Frame{1} << 47 | static_cast<Frame>(kind) << 40 | (payload & ((Frame{1} << 40) - 1));
}
inline constexpr Frame cut_frame(Cut why) noexcept {
  return special_frame(FrameKind::kCut, static_cast<std::uint64_t>(why));
}
inline constexpr FrameKind kind_of(Frame frame) noexcept {
  return (frame >> 47 & 1) == 0 ? FrameKind::kNative : static_cast<FrameKind>(frame >> 40 & 0x7f);
}
inline constexpr std::uint64_t payload_of(Frame frame) noexcept { return frame & ((Frame{1} << 40) - 1); }

}  // namespace memoir::stacks
