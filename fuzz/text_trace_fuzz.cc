// SPDX-License-Identifier: Apache-2.0
//
// Any text as a text trace: refused with an Error that names the file, or imported as a trace that its reader
// takes whole.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "memoir/base/error.h"
#include "memoir/formats/text/import_text_trace.h"
#include "memoir/simulate/workload.h"
#include "memoir/trace/trace.h"

using namespace memoir;

namespace {

void must(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  TraceWriter writer;
  TextTraceReport report;
  try {
    report = import_text_trace({reinterpret_cast<const char*>(data), size}, "x.txt", writer);
  } catch (const Error& error) {
    must(std::strstr(error.what(), "x.txt:") == error.what());
    return 0;
  }
  writer.close();
  const Trace trace = Trace::from_bytes(writer.bytes());
  must(trace.complete() && trace.dropped() == 0);
  const Workload workload(trace.events());
  must(workload.failures().size() == report.out_of_memory);
  must(workload.device_calls().size() == report.segments);
  must(workload.objects().size() + workload.empty() <=
       report.allocations + report.live_before + report.out_of_memory);
  return 0;
}
