// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "memoir/trace/event.h"

namespace memoir {

/// One frame of a stack, as people read it. Views live as long as the trace.
struct StackFrame {
  FrameKind kind = FrameKind::kOperator;
  std::string_view function;  // or the name of an operator, of a module path; of a native frame: may be empty
  std::string_view file;      // of the source; empty: unknown
  std::uint32_t line = 0;     // 0: unknown
  std::string_view module;    // kNative: path of the library or program; empty: code that lies in none
  std::uint64_t offset = 0;   // kNative: of the return address from the module's base
  bool is_inlined = false;    // kNative: into the frame before it, which has the same offset
};

/// A return address: its distance from the base of a module, by the module's number in the trace; 0: the
/// address itself, of code that lies in none.
struct NativeAddress {
  std::uint32_t module = 0;
  std::uint64_t offset = 0;
};

}  // namespace memoir
