// SPDX-License-Identifier: Apache-2.0
//
// What the preloaded library does with the calls that pass through it, and the calling thread's part of it.
//
//   kUnset      nothing was decided yet, or this is a child of fork() that has to begin a trace of its own
//   kDormant    calls go straight on
//   kEverything every event goes into a trace
//   kSampled    some allocations, by their bytes
//
// The word stands in a page that the kernel wipes in a child of any kind of fork, so that kUnset is what a
// child finds.
#pragma once

#include <atomic>
#include <cstdint>

#include "memoir/record/program_recorder.h"

/// Of what the functions here share: reached without the table that other libraries' names need.
#define MEMOIR_HIDDEN __attribute__((visibility("hidden")))
#define MEMOIR_EXPORT extern "C" __attribute__((visibility("default"), used, noinline))

namespace memoir::record {

enum class Mode : std::uint32_t { kUnset = 0, kDormant = 1, kEverything = 2, kSampled = 3 };

/// What each call compares with the control page's `asked`: the mode's own one equals it while nobody asks
/// for something else, so that one comparison says both. The others are kNever, which no word of the page is:
/// whatever somebody writes there, a mode that has not begun is not entered.
struct Tickets {
  static constexpr std::uint64_t kNever = std::uint64_t{1} << 32;
  std::uint64_t dormant = 0, sampled = 0, everything = 0;
};
struct alignas(4096) ForkPage {
  std::atomic<Mode> mode{Mode::kUnset};
  Tickets tickets;
};
extern MEMOIR_HIDDEN ForkPage fork_page;

inline Mode mode() noexcept { return fork_page.mode.load(std::memory_order_relaxed); }
/// Switches all threads over, at their next calls; what is asked by now is answered by it.
MEMOIR_HIDDEN void switch_to(Mode mode) noexcept;

/// Leaves kUnset where that is possible now: starts, or begins a forked child's own trace. Errno is kept.
MEMOIR_HIDDEN void settle() noexcept;

/// The process's recorder, for kEverything.
extern MEMOIR_HIDDEN ProgramRecorder recorder;

/// The calling thread's state. Not one of a library that is loaded later: this one is always preloaded.
struct ThreadState {
  ThreadRecord* record;  // nullptr: not attached yet
  std::uint8_t inside;   // depth of our own code that may allocate or map: nothing is recorded
  bool ended;            // its record was handed on; what comes still is recorded one by one
  std::uint8_t rounds;   // of thread-specific destructors
};
extern MEMOIR_HIDDEN __thread ThreadState thread_state __attribute__((tls_model("initial-exec")));

/// The calling thread's part, attached if need be; nullptr where nothing can be recorded now.
MEMOIR_HIDDEN ThreadRecord* attach_thread() noexcept;
inline ThreadRecord* own_record() noexcept {
  ThreadState& state = thread_state;
  if (state.record != nullptr && state.inside == 0) [[likely]]
    return state.record;
  return attach_thread();
}
/// After the use of what own_record() gave: of a thread that has ended it is handed back.
MEMOIR_HIDDEN void release_late() noexcept;

/// Whether an address is code of the dynamic loader, whose frees may follow the unloading of a library; and
/// of the library that serves malloc, whose own mappings are not the program's.
MEMOIR_HIDDEN bool is_loader(const void* code) noexcept;
MEMOIR_HIDDEN bool is_malloc(const void* code) noexcept;

}  // namespace memoir::record

/// Where the function that holds this was called from. It is expanded in functions that the program calls, or
/// that are jumped to from one.
#define MEMOIR_ENTRY                                                                           \
  (::memoir::stacks::StackWalker::Entry{                                                       \
      reinterpret_cast<::memoir::stacks::Address>(__builtin_frame_address(0)) + sizeof(void*), \
      *static_cast<const ::memoir::stacks::Address*>(__builtin_frame_address(0))})
