// SPDX-License-Identifier: Apache-2.0
//
// A trace numbers streams; what the program called them stands in its meta "streams".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "memoir/trace/write/trace_writer.h"

namespace memoir {

/// handles: of the streams, by their numbers in the trace. One stream needs no names.
inline void write_stream_list(TraceWriter& writer, std::span<const std::uint64_t> handles) {
  if (handles.size() <= 1) return;
  std::string list;
  for (const std::uint64_t handle : handles) {
    if (!list.empty()) list += ',';
    list += std::to_string(handle);
  }
  writer.meta("streams", list);
}

}  // namespace memoir
