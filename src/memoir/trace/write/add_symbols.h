// SPDX-License-Identifier: Apache-2.0
//
// Names for the addresses of a recording, found after it: they are added to the file, and go where it goes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace memoir {

/// What stands at a return address: the innermost of inlined functions first.
struct Symbol {
  struct Line {
    std::string function, file;  // empty: unknown
    std::uint32_t line = 0;      // 0: unknown
  };
  std::uint32_t module = 0;  // its number in the trace
  std::uint64_t offset = 0;  // of the return address from the module's base
  std::vector<Line> lines;
};

/// Adds them to the trace of version 1 at `path`; a later one of the same address counts. Throws Error: no
/// such trace, one that is still recorded (its blocks are open: finish_trace()), a disk that is full (the
/// trace is then as it was).
void add_symbols(const std::string& path, std::span<const Symbol> symbols);

}  // namespace memoir
