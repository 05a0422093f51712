// SPDX-License-Identifier: Apache-2.0
//
// A CUDA driver without a GPU, for tests: the driver's functions that memoir calls, over ordinary memory, and
// this: what a test does in the GPU's place. It is a shared object; memoir loads it where MEMOIR_CUDA_DRIVER
// names it.
//
// Device memory can be read and written by the host. A stream is a queue of kernels, event records and waits
// that runs only when a test says so, or somebody waits: whatever memoir believes to be done without having
// asked is caught. Where several streams could go on, a seeded choice decides which does. Misuse (a second
// unmap, memory taken away under queued work, a kernel that finds other bytes than its stream left, an event
// of a capture that is asked about ...) is not fatal: it is written down, to be read by fake_misuse().
//
// Thread-safe: one lock. All functions are C, so that Python's tests can call them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Forgets everything: `devices` devices of `capacity` bytes each, mapped in units of `granularity` bytes.
/// What is left from before is dropped.
void fake_reset(int devices, uint64_t capacity, uint64_t granularity);
/// The `after`-th call from now (0: the next) to the driver's function of this name, and `times` from there
/// on, fail with `result`.
void fake_fail(const char* function, int after, int times, int result);
/// From now on until the reset, the devices say that mapped memory can be registered by network cards and
/// shared by handles of these types, and memory that is asked for with a refused one is not made.
void fake_set_features(int rdma, int handle_types, int refused_rdma, int refused_handle_types);
/// As cudaDeviceReset(): what is mapped and allocated is gone, and whoever gives it back is told so.
void fake_device_reset(void);
/// Bytes that another process takes on the device (they are not there for memoir).
void fake_set_foreign(int device, uint64_t bytes);

/// From now on until the reset, plain memory (cuMemAlloc) lies where `place` says, and `gone` is told when it
/// is freed: addresses without memory behind them, for tests that compare where things go.
void fake_place_segments(uint64_t (*place)(void* context, uint64_t size),
                         void (*gone)(void* context, uint64_t address), void* context);

/// How often a function was called since the reset, with success or without.
uint64_t fake_calls(const char* function);
/// Bytes of physical memory taken on a device, and the most since the reset.
uint64_t fake_used(int device);
uint64_t fake_peak_used(int device);
/// Handles, mappings, reservations, allocations and events that live now, and streams' queued work.
uint64_t fake_live_things(void);
/// Misuses since the reset; the text of one ("" beyond the last).
int fake_misuse_count(void);
const char* fake_misuse(int index);
/// How many devices may use the memory that is mapped at this address.
int fake_accessors(uint64_t address);

void* fake_stream_create(void);
/// Queues a kernel that writes `value` to every byte, and one that checks that it finds `value` in every
/// byte.
void fake_launch_fill(void* stream, uint64_t address, uint64_t size, int value);
void fake_launch_check(void* stream, uint64_t address, uint64_t size, int value);
/// An event of the program's own: `to` goes on when `from` has reached this point.
void fake_program_waits(void* from, void* to);
/// Runs up to `operations` queued operations of all streams; returns how many ran.
int fake_run(int operations);
void fake_run_all(void);
void fake_seed(unsigned seed);

/// Captures what is queued on the stream from now on, in the global mode; returns a graph's number.
int fake_capture_begin(void* stream);
/// 1 when the graph is good, 0 when the capture was invalidated.
int fake_capture_end(void* stream);
void fake_graph_launch(int graph, void* stream);

#ifdef __cplusplus
}
#endif
