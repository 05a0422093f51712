// SPDX-License-Identifier: Apache-2.0
//
// What is left out of a stack that is to be read: of thousands of frames those between the outermost and the
// innermost. Stacks are a tree, and a file has each of its frames once; as texts next to each other they
// would be thousands of times as long as the file.
//
//   main > run > [3,488 frames] > call > f
#pragma once

#include <cstddef>
#include <string>

#include "memoir/base/units.h"

namespace memoir {

struct StackCut {
  static constexpr std::size_t kOuter = 384, kInner = 128;              // frames
  static constexpr Size kOuterText = 24 * kKiB, kInnerText = 8 * kKiB;  // bytes

  std::size_t outer = 0;     // frames before those that are left out
  std::size_t left_out = 0;  // 0: the stack is whole

  /// What stands for them: "[3,488 frames]".
  std::string text() const {
    std::string digits = std::to_string(left_out);
    for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
    return "[" + digits + " frames]";
  }
  /// `size_of(i)`: bytes of the text of a frame, 0 being the outermost.
  template <class SizeOf>
  StackCut(std::size_t depth, SizeOf size_of) {
    Size text = 0;
    for (std::size_t i = 0; i < depth; ++i) text += size_of(i);
    if (depth <= kOuter + kInner && text <= kOuterText + kInnerText) {
      outer = depth;
      return;
    }
    std::size_t inner = 0;
    for (Size room = kInnerText; inner < depth && inner < kInner; ++inner) {
      const Size size = size_of(depth - 1 - inner);
      if (inner != 0 && size > room) break;
      room -= size < room ? size : room;
    }
    for (Size room = kOuterText; outer < depth - inner && outer < kOuter; ++outer) {
      const Size size = size_of(outer);
      if (size > room) break;
      room -= size;
    }
    left_out = depth - inner - outer;
  }
};

}  // namespace memoir
