// SPDX-License-Identifier: Apache-2.0
//
// The log of RAPIDS Memory Manager's logging_resource_adaptor becomes a trace; docs/guides/snapshots.md tells
// what becomes what.
//
//   Thread,Time,Action,Pointer,Size,Stream
//   4711,10:38:08.459523,allocate,0x7f2d18000000,4096,0x0
//   4711,10:38:08.460012,free,0x7f2d18000000,4096,0x0
//   4711,10:38:09.000001,allocate failure,0x0,8589934592,0x0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memoir/trace/write/trace_writer.h"

namespace memoir {

struct RmmReport {
  std::uint64_t rows = 0, allocations = 0, frees = 0, out_of_memory = 0;
  std::uint64_t live_before = 0;  // objects of which the log has the free alone: live at its start
  std::uint64_t lost_frees = 0;  // objects that had lost their free: freed when their address was given again
  std::uint64_t times_back = 0;  // rows earlier than the one before them: given its time
  std::uint64_t unreadable = 0;  // threads and times: the first one's, and that of the row before
  std::uint64_t threads = 0, streams = 0;
};

/// Whether a file that begins so is such a log: by the names of its columns.
bool is_rmm_log(std::string_view begin) noexcept;

/// Writes the log's story; `name` is the file's, for errors. Takes memory for the rows that there are, some
/// 48 bytes each. Throws Error, naming file and line, for what cannot be, and when the writer gave up; what
/// it wrote until then is useless.
RmmReport import_rmm_log(std::string_view text, const std::string& name, TraceWriter& writer);

}  // namespace memoir
