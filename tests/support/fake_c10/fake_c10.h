// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the part of PyTorch that memoir's door to PyTorch (src/memoir/remember/torch) talks to: an
// allocator over malloc, operator scopes with thread-local callbacks, and the memory profiler's reporter.
// With it the unchanged door runs under sanitizers, which PyTorch's own libraries are not built with.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/record_function.h"
#include "c10/core/CPUAllocator.h"

namespace fake_c10 {

/// Blocks of the allocator over malloc that are live, in the process. Thread-safe.
std::int64_t live_blocks() noexcept;

/// Turns the memory profiler on or off for the calling thread.
void profile_memory(bool on) noexcept;

/// The calling thread's callbacks. PyTorch copies them to the threads that work for this one, for example in
/// the backward pass.
using Callbacks = std::vector<std::pair<at::CallbackHandle, at::RecordFunctionCallback>>;
Callbacks callbacks();
void set_callbacks(Callbacks callbacks);

}  // namespace fake_c10
