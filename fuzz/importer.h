// SPDX-License-Identifier: Apache-2.0
//
// What holds for every importer of text: it refuses a text with an Error that begins with the file's name, or
// makes a trace of it. The reader takes that trace whole and finds in it all that the importer counted.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "memoir/base/error.h"
#include "memoir/simulate/workload.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/write/trace_writer.h"

namespace memoir::fuzz {

inline void must(bool holds) {
  if (!holds) std::abort();
}

/// `import(text, name, writer)` gives a report; `check(workload, report)` is what else must hold.
template <class Import, class Check>
int import_any(const std::uint8_t* data, std::size_t size, const std::string& name, Import import,
               Check check) {
  TraceWriter writer;
  decltype(import(std::string_view{}, name, writer)) report;
  try {
    report = import(std::string_view{reinterpret_cast<const char*>(data), size}, name, writer);
  } catch (const Error& error) {
    must(std::string_view(error.what()).starts_with(name + ":"));
    return 0;
  }
  writer.close();
  const Trace trace = Trace::from_bytes(writer.bytes());
  must(trace.complete() && trace.dropped() == 0);
  const Workload workload(trace.events());
  must(workload.failures().size() == report.out_of_memory);
  must(workload.objects().size() + workload.empty() <=
       report.allocations + report.live_before + report.out_of_memory);
  check(workload, report);
  return 0;
}

}  // namespace memoir::fuzz
