// SPDX-License-Identifier: Apache-2.0
//
// The C functions that PyTorch calls: for torch.cuda.memory.CUDAPluggableAllocator and its hooks, and for
// MemPools. They forward to a DeviceRuntime per device, made at the first allocation there. Thread-safe;
// nothing of CUDA or of PyTorch is needed to build them.
//
// A slot is one configuration. Slot 0 is the process's allocator: it throws when there is no memory, since
// PyTorch does not look for a null pointer there. Slots 1 to kSlots - 1 are MemPools: they answer nullptr,
// after which PyTorch gives back what it caches in the pool and asks again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "memoir/arena/cuda_driver.h"
#include "memoir/base/units.h"

#define MEMOIR_EXPORT extern "C" __attribute__((visibility("default")))

namespace memoir::device_door {

inline constexpr int kSlots = 130;
inline constexpr int kDevices = 64;

/// What a refused request becomes: never returns. Defined once per shared object: by throw_c10.cc, as the
/// exceptions that PyTorch turns into torch.OutOfMemoryError and RuntimeError.
[[noreturn]] void throw_refusal(bool out_of_memory, const std::string& text);

/// The site of an allocation that this thread makes now; kNoSite while sites are not listened to..
SiteId current_site() noexcept;
std::string site_name(SiteId site);

}  // namespace memoir::device_door

// --- set-up; texts are valid until the thread's next call of this kind ---

/// nullptr when there is a driver that starts, else why there is none.
MEMOIR_EXPORT const char* memoir_cuda_problem();
/// Says what a slot is: a policy with its settings, the most bytes per device (2^64 - 1: all), and entries of
/// history kept. nullptr when done, else what is wrong. A slot that is open must be closed first.
MEMOIR_EXPORT const char* memoir_cuda_open(int slot, const char* policy, std::uint64_t cap,
                                           std::uint64_t history);
/// A slot of its own for a MemPool, -1 when all are taken.
MEMOIR_EXPORT int memoir_cuda_free_slot();
/// The MemPool of this slot is gone, or going: when nothing lives in it any more, all of its memory goes back
/// to the device, and the slot can be opened again.
MEMOIR_EXPORT void memoir_cuda_close(int slot);
/// Called with a device's number when a request of slot 0 finds no memory, without any lock, so that it may
/// free.
MEMOIR_EXPORT void memoir_cuda_on_low_memory(void (*callback)(int device, void* context), void* context);

// --- PyTorch's functions, slot 0 ---

MEMOIR_EXPORT void* memoir_cuda_alloc(std::size_t size, int device, memoir::cuda::Stream stream);
MEMOIR_EXPORT void memoir_cuda_free(void* pointer, std::size_t size, int device, memoir::cuda::Stream stream);
MEMOIR_EXPORT void memoir_cuda_init(int devices);
MEMOIR_EXPORT void memoir_cuda_reset();
MEMOIR_EXPORT void memoir_cuda_memory_fraction(double fraction, int device);
MEMOIR_EXPORT void* memoir_cuda_base_alloc(void* pointer, std::size_t* size);
MEMOIR_EXPORT void memoir_cuda_record_stream(void* pointer, memoir::cuda::Stream stream);
// C++ types, as c10 has them: MempoolId_t is a pair of 64-bit numbers.
MEMOIR_EXPORT void memoir_cuda_begin_pool(int device, std::pair<std::uint64_t, std::uint64_t> id,
                                          std::function<bool(memoir::cuda::Stream)> filter);
MEMOIR_EXPORT void memoir_cuda_end_pool(int device, std::pair<std::uint64_t, std::uint64_t> id);
MEMOIR_EXPORT void memoir_cuda_release_pool(int device, std::pair<std::uint64_t, std::uint64_t> id);

// --- for a MemPool: memoir_cuda_alloc_1 ... memoir_cuda_free_129 are exported by name ---

MEMOIR_EXPORT void memoir_cuda_reset_slot(int slot);

// --- what is held; JSON, to be given back with memoir_cuda_free_text ---

/// A list of the slot's devices in use; see device/device_view.h.
MEMOIR_EXPORT char* memoir_cuda_stats(int slot);
MEMOIR_EXPORT char* memoir_cuda_snapshot(int slot);
/// The policies and their settings.
MEMOIR_EXPORT char* memoir_cuda_policies();
MEMOIR_EXPORT void memoir_cuda_reset_peaks(int slot);
MEMOIR_EXPORT void memoir_cuda_free_text(char* text);
