// SPDX-License-Identifier: Apache-2.0
//
// A PyTorch memory snapshot becomes a trace; docs/guides/snapshots.md tells what becomes what.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "memoir/formats/snapshot/snapshot.h"
#include "memoir/trace/write/trace_writer.h"

namespace memoir {

struct ImportOptions {
  /// Annotations whose names begin so are passes; the others are left out, and counted.
  std::string passes = "ProfilerStep#";
};

/// What an import did, what it inferred, and what the trace does not hold.
struct ImportReport {
  std::uint64_t devices = 0;  // that something is said of
  std::uint64_t entries = 0;  // of their histories
  std::uint64_t allocations = 0, frees = 0, segments = 0, out_of_memory = 0, passes = 0;
  std::uint64_t live_before = 0;    // objects that were there when the history began
  std::uint64_t known_by_free = 0;  // of these, known by their free alone
  std::uint64_t pending = 0;        // frees that waited for other streams
  std::uint64_t lost_frees = 0;  // objects that had lost their free: freed when their address was given again
  std::uint64_t after_history = 0;  // blocks at the end that were made after the history: left out
  std::uint64_t odd_segments = 0;   // segment events that do not fit the segments at the end
  std::uint64_t without_time = 0;   // entries without one: they take that of the entry before
  std::uint64_t times_back = 0;     // entries before the one before them: the same
  std::uint64_t private_pools = 0;  // that anything is of
  std::uint64_t user_metadata = 0, compile_contexts = 0;   // entries that had these: not kept
  std::uint64_t unreadable = 0;                            // see Snapshot::unreadable()
  std::map<std::string, std::uint64_t> other_actions;      // by name: left out
  std::map<std::string, std::uint64_t> other_annotations;  // by name up to '#': left out
};

/// Writes the snapshot's story. Throws Error, which begins with the snapshot's name, for one that cannot be,
/// and when the writer gave up; what it wrote until then is useless.
ImportReport import_snapshot(const Snapshot& snapshot, TraceWriter& writer,
                             const ImportOptions& options = {});

}  // namespace memoir
