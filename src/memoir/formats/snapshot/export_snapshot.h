// SPDX-License-Identifier: Apache-2.0
//
// A trace as a PyTorch memory snapshot, as torch.cuda.memory._dump_snapshot() would have written it: what
// pytorch.org/memory_viz and torch.cuda._memory_viz open, and import_snapshot() reads back as the same trace.
#pragma once

#include "memoir/base/output.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

struct ExportReport {
  std::uint64_t events = 0;    // entries, slices, ... that were written
  std::uint64_t placed = 0;    // objects without recorded addresses: laid out here
  std::uint64_t left_out = 0;  // objects of 0 bytes that have no address
};

/// Throws Error when the output does, and for a trace that cannot be laid out (trace_layout.h).
ExportReport export_snapshot(const Trace& trace, Output& output);

}  // namespace memoir
