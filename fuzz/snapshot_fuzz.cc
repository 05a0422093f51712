// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a PyTorch memory snapshot: refused with an Error that names the file, or imported as a trace
// that its reader takes, and that comes back the same from its own export.
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/formats/snapshot/export_snapshot.h"
#include "memoir/formats/snapshot/import_snapshot.h"
#include "memoir/formats/timeline/export_timeline.h"

using namespace memoir;

namespace {

void must(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::byte> import(std::span<const std::byte> bytes) {
  const Snapshot snapshot = Snapshot::from_bytes(bytes, "x.pickle");
  TraceWriter writer;
  import_snapshot(snapshot, writer);
  writer.close();
  return {writer.bytes().begin(), writer.bytes().end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  std::vector<std::byte> first;
  try {
    first = import({reinterpret_cast<const std::byte*>(data), size});
  } catch (const Error& error) {
    must(std::strstr(error.what(), "x.pickle: ") == error.what());
    return 0;
  }
  const Trace trace = Trace::from_bytes(first);
  must(trace.complete() && trace.dropped() == 0);
  Output chrome, perfetto, snapshot;
  export_chrome(trace, chrome);
  export_perfetto(trace, perfetto);
  export_snapshot(trace, snapshot);
  const std::vector<std::byte> second = import(std::as_bytes(std::span(snapshot.text())));
  const Trace back = Trace::from_bytes(second);
  Output again;
  export_snapshot(back, again);
  must(import(std::as_bytes(std::span(again.text()))) == second);
  return 0;
}
