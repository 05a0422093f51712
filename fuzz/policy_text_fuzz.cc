// SPDX-License-Identifier: Apache-2.0
//
// Any text as a policy, as people and services write it: refused with an Error that says something, or
// simulated on a small workload, whose every object then has its bytes.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "memoir/base/error.h"
#include "memoir/simulate/simulation.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/write/trace_writer.h"

using namespace memoir;

namespace {

void must(bool holds) {
  if (!holds) std::abort();
}

/// Two streams, a few sizes, twice the same.
Workload small_workload() {
  TraceWriter writer;
  ObjectId object = 0;
  for (int turn = 0; turn < 2; ++turn) {
    const ObjectId first = object + 1;
    for (const Size size : {Size{512}, 3 * kMiB, Size{100'000}, 21 * kMiB, Size{1}}) {
      ++object;
      writer.allocate(object, 7 + size, size, 256, 0, 0, object % 2);
    }
    for (ObjectId freed = first; freed <= object; ++freed) writer.free(freed, 0, 0, freed % 2);
  }
  const Trace trace = Trace::from_bytes(writer.bytes());
  return Workload(trace.events());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  static const Workload workload = small_workload();
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const Simulation result =
        simulate(workload, text, {.cap = 256 * kMiB, .stop_at_oom = false, .samples = 4, .timed = false});
    must(result.operations <= workload.operations());
    must(result.completed == (result.failed == 0));
    if (result.completed) must(result.peak_live == workload.peak_live());
    must(result.peak_reserved >= result.peak_live);
  } catch (const Error& error) {
    must(std::strlen(error.what()) > 10);
  }
  return 0;
}
