// SPDX-License-Identifier: Apache-2.0
//
// Any text as a text trace (see importer.h).
#include "memoir/formats/text/import_text_trace.h"

#include "importer.h"

using namespace memoir;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  return fuzz::import_any(
      data, size, "x.txt",
      [](std::string_view text, const std::string& name, TraceWriter& writer) {
        return import_text_trace(text, name, writer);
      },
      [](const Workload& workload, const TextTraceReport& report) {
        fuzz::must(workload.device_calls().size() == report.segments);
      });
}
