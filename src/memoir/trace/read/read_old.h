// SPDX-License-Identifier: Apache-2.0
//
// Reads versions 1 and 2 of the trace format.
#pragma once

#include "memoir/trace/file/byte_source.h"
#include "memoir/trace/read/trace_data.h"

namespace memoir {

/// Reads all of a file whose magic and version are those. Throws Error, naming the record.
void read_old(const ByteSource& source, TraceData& data);

}  // namespace memoir
