// SPDX-License-Identifier: Apache-2.0
//
// What one stack costs, by depth and by how it is found: nanoseconds, less the calls that make it.
// record_stacks [ROUNDS] prints a row for each depth.
#include <time.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "memoir/process/stacks/stack_walker.h"
#include "memoir/process/stacks/thread_stack.h"

namespace {

using memoir::stacks::Address;

memoir::stacks::StackTables tables;
memoir::stacks::StackWalker walker;
enum class Method { kNone, kCapture, kWalk, kUnwind } method;
volatile std::uint64_t sink = 0;
int repeats = 1;

_Unwind_Reason_Code count_frame(struct _Unwind_Context* context, void* data) {
  *static_cast<std::uint64_t*>(data) += _Unwind_GetIP(context);
  return _URC_NO_REASON;
}

__attribute__((noinline)) void event() {
  auto* const base = static_cast<Address*>(__builtin_frame_address(0));
  const memoir::stacks::StackWalker::Entry entry{reinterpret_cast<Address>(base + 1), base[0]};
  for (int i = 0; i < repeats; ++i) {
    std::uint64_t sum = 0;
    switch (method) {
      case Method::kNone:
        break;
      case Method::kCapture:
        sum = walker.capture(entry);
        break;
      case Method::kWalk:
        sum = walker.recapture(entry);
        break;
      case Method::kUnwind:
        _Unwind_Backtrace(count_frame, &sum);
        break;
    }
    sink = sink + sum;
  }
}

// Two ways down, whose frames differ in size: no frame of one stands where the other's did.
__attribute__((noinline)) void narrow(int depth) {
  depth == 0 ? event() : narrow(depth - 1);
  sink = sink + 1;
}
__attribute__((noinline)) void wide(int depth) {
  volatile char room[80];
  room[depth % 80] = 1;
  depth == 0 ? event() : wide(depth - 1);
  sink = sink + room[depth % 80];
}

/// Nanoseconds of CPU time for a stack; `other` alternates between the two ways.
double measure(Method how, int depth, bool other, int rounds) {
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    method = how;
    timespec before, after;
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    for (int i = 0; i < rounds; ++i) {
      narrow(depth);
      if (other) wide(depth);
    }
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double nanoseconds = static_cast<double>(after.tv_sec - before.tv_sec) * 1e9 +
                               static_cast<double>(after.tv_nsec - before.tv_nsec);
    best = std::min(best, nanoseconds / rounds / (other ? 2 : 1) / repeats);
  }
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 20000;
  const memoir::stacks::ThreadStack own = memoir::stacks::find_thread_stack();
  if (!tables.start()) return 1;
  walker.start(tables, own.begin, own.end);
  for (const int depth : {5, 15, 30, 60, 120}) {
    repeats = 10;
    const double same =
        measure(Method::kCapture, depth, false, rounds) - measure(Method::kNone, depth, false, rounds);
    repeats = 1;
    const double calls = measure(Method::kNone, depth, true, rounds);
    const double cached = measure(Method::kCapture, depth, true, rounds) - calls;
    const double walked = measure(Method::kWalk, depth, true, rounds) - calls;
    const double unwound = measure(Method::kUnwind, depth, true, rounds / 20 + 1) - calls;
    std::printf("| %d | %.0f | %.0f | %.0f | %.0f |\n", depth + 6, same, cached, walked, unwound);
  }
}
