// SPDX-License-Identifier: Apache-2.0
//
// What the library knows of the process that it is in: where its traces go, and how it ends.
#pragma once

#include <string.h>

#include "memoir/record/preload/control.h"
#include "memoir/record/tick_clock.h"

namespace memoir::record {

/// Addresses of one module.
struct CodeRange {
  std::uintptr_t begin = 0, size = 0;
  bool holds(const void* code) const noexcept {
    return reinterpret_cast<std::uintptr_t>(code) - begin < size;
  }
};

struct Process {
  static constexpr std::size_t kMostPath = 1000;

  char trace[kMostPath] = {};  // of the first process; children add their number
  char checks[kMostPath] = {};
  char clock_path[kMostPath] = {};
  TickClock clock;
  char control[kMostPath] = {};  // the folder of control pages that a recording set up; "": the user's own
  Size every = 0;                // bytes between samples, for kSampled
  Mode wanted = Mode::kDormant;
  int pid = 0;
  bool started = false;
  bool forked = false;          // this image began by fork()
  bool keep_arguments = false;  // secrets in the command line are not masked
  CodeRange loader, malloc_library;

  /// Creates the trace of this process image: `path`, or x.<pid>.trace, or x.<pid>.2.trace, ... whichever is
  /// free. `asked`: by `memoir attach`, of a program that runs.
  bool begin_trace(const char* path, bool asked = false) noexcept;
  void list_trace(const char* first, int stem, const char* own) const noexcept;
  void find_own_modules() noexcept;
  /// A file that the program mapped as code: writes its path down where it is a jitdump.
  void found_names_of_code(int file) noexcept;
  /// Whether this is the process that records, and not a child that still shares its memory (vfork).
  bool is_own() const noexcept;
  /// Writes down that the program ends, or becomes another one.
  void ends(unsigned status, bool by_exec) noexcept;
  /// It did not become another one.
  void goes_on() noexcept;
};

/// Copies a variable's text; "" where there is none, or one that is too long.
template <std::size_t kSize>
void copy_text(char (&to)[kSize], const char* from) noexcept {
  const std::size_t length = from == nullptr ? 0 : strnlen(from, kSize);
  to[0] = '\0';
  if (length == 0 || length >= kSize) return;
  memcpy(to, from, length + 1);
}

extern Process& process;

}  // namespace memoir::record
