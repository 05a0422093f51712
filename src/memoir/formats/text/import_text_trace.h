// SPDX-License-Identifier: Apache-2.0
//
// A text trace becomes a trace; docs/reference/formats.md specifies the text.
//
//   s 4096 20971520        a segment that was held when the recording began
//   i 1 512 0 4096         object 1 of 512 bytes on stream 0 was live then, at address 4096
//   b                      the history begins
//   a 2 1024 0 8192
//   f 1
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memoir/trace/write/trace_writer.h"

namespace memoir {

struct TextTraceReport {
  std::uint64_t allocations = 0, frees = 0, segments = 0, out_of_memory = 0;
  std::uint64_t live_before = 0;  // not among the allocations
};

/// Whether a file that begins so may be one: the first line with an event is one of its kinds.
bool is_text_trace(std::string_view begin) noexcept;

/// Writes the text's story, all of it on `device`; `name` is the file's, for errors. Takes 40 bytes of memory
/// for each object, and some 100 more for each that lives at once and each segment. Throws Error, naming file
/// and line, for what cannot be, and when the writer gave up; what it wrote until then is useless.
TextTraceReport import_text_trace(std::string_view text, const std::string& name, TraceWriter& writer,
                                  std::uint16_t device = 0);

}  // namespace memoir
