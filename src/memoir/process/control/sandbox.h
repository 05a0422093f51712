// SPDX-License-Identifier: Apache-2.0
//
// Which calls of the system a library of ours may make inside somebody else's program. A filter of calls
// (seccomp) may end the program at the first that its author did not think of, and nothing tells beforehand
// what it does: so behind a filter only those calls are made that any program makes.
//
//   always    mmap munmap mremap mprotect madvise futex, clock_gettime of the clocks that need no call, and
//             what the C library does to start a thread where the program has started one
//   open      also membarrier, mincore, the clocks of CPU time, a thread, files, process_vm_readv
//
// A filter is there from the start (a service's, a container's: /proc/self/status says so), or the program
// enters it: then it calls prctl(), in front of which the preloaded libraries put note_prctl().
#pragma once

namespace memoir::host_control {

/// Whether there is no filter, or one that was there at the start and is trusted. Any thread; cheap: one call
/// of the system at most. Keeps errno.
bool may_call_all() noexcept;
/// Whether files may be opened: not once the program has entered a filter itself.
bool may_open_files() noexcept;
/// Whether a thread may be started. `seen`: the program has started one itself.
bool may_start_thread(bool seen) noexcept;

/// The filter that is there at the start lets through all calls that we make. Before the first question.
void trust_filter_at_start() noexcept;

/// What prctl(option, ...) does about filters, before it is called and after.
struct NotedPrctl {
  explicit NotedPrctl(int option) noexcept;
  void done(bool well) const noexcept;

 private:
  bool enters_;
  int before_ = 0;
};

}  // namespace memoir::host_control
