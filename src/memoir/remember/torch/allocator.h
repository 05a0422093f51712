// SPDX-License-Identifier: Apache-2.0
//
// memoir in front of PyTorch's CPU allocator (c10::SetCPUAllocator). It stands there from install() to the
// end of the process, since tensors carry its deleter; a thread that is not in a pass is forwarded after one
// thread-local load.
//
// A pass is what one thread does between begin and end: it either records (every allocation goes to PyTorch's
// own allocator and is told to a Recorder) or follows a plan (a Slab answers; what it does not answer is
// forwarded). Passes do not nest on a thread; in_pass() says so first. Every function is for the calling
// thread alone.
#pragma once

#include <cstdint>
#include <optional>

#include "memoir/record/program_recording.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/remember/slab/request_log.h"
#include "memoir/remember/slab/slab.h"

namespace memoir::torch_door {

/// Puts memoir's allocator in place. Idempotent and thread-safe.
void install();

/// A pass of this thread has begun and not ended, whatever the thread runs now.
bool in_pass() noexcept;

/// Where a pass runs. A thread may run something else in its midst: a fibre or a signal handler on another
/// stack, or a greenlet, which takes the pass's place on the same one. Then the pass is suspended: the
/// thread's allocations go to PyTorch, and neither the slab's plan nor a recording hears of them.
struct Whereabouts {
  std::uintptr_t lowest = 0;  // what runs within the pass has its frames in [lowest, frame)
  std::uintptr_t frame = ~std::uintptr_t{0};
  // A variable of the thread that points into a list, linked by the first word of each; whoever runs has a
  // list of its own, which ends with `last`. Null: nothing of the kind.
  const void* const* list = nullptr;
  const void* seen = nullptr;  // a part of the list
  const void* last = nullptr;

  /// Of the function whose frame this is; nullopt when it is not on the thread's own stack: nobody knows then
  /// where that stack ends, so no pass begins there.
  static std::optional<Whereabouts> of(const void* frame, const void* const* list = nullptr) noexcept;
  bool is_here() const noexcept {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (here - lowest >= frame - lowest) [[unlikely]]
      return false;
    return list == nullptr || *list == seen || last_of(*list) == last;
  }

 private:
  static const void* last_of(const void* list) noexcept {
    const void* last = list;
    for (; list != nullptr; list = *static_cast<const void* const*>(list)) last = list;
    return last;
  }
};

/// The recorder is kept alive until end_recording(). While exactly one recording is in progress in the
/// process, allocations of threads that are in no pass are recorded too, under their own thread number and no
/// site.
/// `large_apart`: large objects of this thread come from SeparateMemory, so that the pass peaks at its live
/// bytes; it costs their page faults.
void begin_recording(Recorder& recorder, bool large_apart, const Whereabouts& where = {});
/// Returns how many operators were listened to.
unsigned end_recording() noexcept;

/// Records what every thread allocates, in passes or not, each under its own number and by its own operators,
/// until end_recording_everywhere() with the same recorder, which is kept alive until then; false, and
/// nothing happens, while another one does. It ends in the child of a fork(), which may begin its own.
bool begin_recording_everywhere(Recorder& recorder);
void end_recording_everywhere(const Recorder& recorder) noexcept;

/// Tells a recording of the whole program of every tensor and operator of every thread, from now on, also in
/// children of fork(). False while something else records everywhere. It does not end.
bool tell_program_recording(const ProgramRecording& recording);

struct PassResult {
  PlannedHeap::Counters counters;
  bool in_step = true;     // every allocation was the next one of the recording, and its range was free
  bool at_end = true;      // nothing of the recording was left over
  unsigned operators = 0;  // that were listened to
};

/// Follows the slab, which is leased. `scoped`: match by operator from the first allocation on; otherwise by
/// order and size until the first difference, and by operator from there on (an operator scope costs about
/// 0.2 us, in step none is needed). `log`, unless null: is told every request, served or not. `recorder`,
/// unless null: the pass is recorded too, as begin_recording() has it, but for where its memory comes from.
/// Throws when there is no memory to begin with; then nothing has begun.
/// What is given here is used while the pass is not suspended, and at its end; the recorder by every thread
/// that frees, so it is not on a stack that others may take the place of.
void begin_planned(Slab& slab, bool scoped, RequestLog* log = nullptr, Recorder* recorder = nullptr,
                   const Whereabouts& where = {});
PassResult end_planned() noexcept;

}  // namespace memoir::torch_door
