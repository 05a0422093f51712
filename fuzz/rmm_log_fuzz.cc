// SPDX-License-Identifier: Apache-2.0
//
// Any text as a log of RAPIDS Memory Manager (see importer.h).
#include "memoir/formats/rmm/import_rmm_log.h"

#include "importer.h"

using namespace memoir;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  return fuzz::import_any(
      data, size, "x.csv",
      [](std::string_view text, const std::string& name, TraceWriter& writer) {
        return import_rmm_log(text, name, writer);
      },
      [](const Workload&, const RmmReport&) {});
}
