// SPDX-License-Identifier: Apache-2.0
//
// What is done to a recording once its program has ended: the blocks that are still open are sealed, all are
// compressed, and the file says how the program ended. Done by who started the program, never inside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memoir/base/units.h"

namespace memoir {

struct FinishOptions {
  /// The program ended by itself, with that exit status: nothing is lost that the file does not tell of, and
  /// it is complete. Without it (it was killed) the file stays incomplete, as it is.
  std::optional<std::uint32_t> status;
  bool compress = true;
};

struct FinishedTrace {
  Size before = 0;  // bytes of the file
  Size after = 0;
};

/// Rewrites the trace of version 1 at `path`, by way of a file next to it: it is as it was, or finished. Who
/// is ended meanwhile leaves no other file, where the file system has nameless ones (O_TMPFILE). A torn block
/// of a program that was killed is left out, as readers do. Throws Error: no such trace, a disk that is full
/// (the file is then as it was).
FinishedTrace finish_trace(const std::string& path, const FinishOptions& options = {});

}  // namespace memoir
