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

#include "memoir/record/program_recording.h"
#include "memoir/remember/slab/recorder.h"
#include "memoir/remember/slab/request_log.h"
#include "memoir/remember/slab/slab.h"

namespace memoir::torch_door {

/// Puts memoir's allocator in place. Idempotent and thread-safe.
void install();

bool in_pass() noexcept;

/// The recorder is kept alive until end_recording(). While exactly one recording is in progress in the
/// process, allocations of threads that are in no pass are recorded too, under their own thread number and no
/// site.
/// `large_apart`: large objects of this thread come from SeparateMemory, so that the pass peaks at its live
/// bytes; it costs their page faults.
void begin_recording(Recorder& recorder, bool large_apart);
void end_recording() noexcept;

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
  bool in_step = true;  // every allocation was the next one of the recording, and its range was free
  bool at_end = true;   // nothing of the recording was left over
};

/// Follows the slab, which is leased. `scoped`: match by operator from the first allocation on; otherwise by
/// order and size until the first difference, and by operator from there on (an operator scope costs about
/// 0.2 us, in step none is needed). `log`, unless null: is told every request, served or not. `recorder`,
/// unless null: the pass is recorded too, as begin_recording() has it, but for where its memory comes from.
/// Throws when there is no memory to begin with; then nothing has begun.
void begin_planned(Slab& slab, bool scoped, RequestLog* log = nullptr, Recorder* recorder = nullptr);
PassResult end_planned() noexcept;

}  // namespace memoir::torch_door
