// SPDX-License-Identifier: Apache-2.0
//
// The few calls of NVIDIA's driver that memoir makes, found in libcuda.so.1 when they are first wanted:
// nothing of CUDA is needed to build memoir, or to import it on a machine without a GPU. The types are
// declared here as the driver's binary interface has them (versioned symbols do not change);
// tests/arena/test_cuda_abi.cc holds them against cuda.h where there is one.
//
// MEMOIR_CUDA_DRIVER names another library than libcuda.so.1: the tests' own driver, which needs no GPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memoir::cuda {

using Result = int;  // CUresult; kSuccess, or what error_name() says
using Device = int;
using Address = std::uint64_t;  // CUdeviceptr
using Handle = std::uint64_t;   // CUmemGenericAllocationHandle: physical memory
struct ContextState;
struct StreamState;
struct EventState;
using Context = ContextState*;
using Stream = StreamState*;  // the same as cudaStream_t; nullptr is the legacy default stream
using Event = EventState*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotReady = 600;
/// Refused because a stream is being captured (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to ..._WRONG_THREAD).
inline constexpr bool is_about_capture(Result result) noexcept { return result >= 900 && result <= 908; }

struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};

struct AllocationProperties {  // CUmemAllocationProp
  int type = 1;                // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;        // CU_MEM_HANDLE_TYPE_NONE
  Location location;
  void* win32_metadata = nullptr;
  unsigned char compression = 0;
  unsigned char gpu_direct_rdma_capable = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};

struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

inline constexpr int kMinimumGranularity = 0;  // CU_MEM_ALLOC_GRANULARITY_MINIMUM
inline constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr int kCaptureModeRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr int kNotCapturing = 0;        // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kAttributeVirtualMemory = 102;
inline constexpr int kAttributeFileDescriptorHandles = 103;
inline constexpr int kAttributeRdmaWithVirtualMemory = 110;
inline constexpr int kAttributeFabricHandles = 128;
inline constexpr int kFileDescriptorHandle = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr int kFabricHandle = 8;          // CU_MEM_HANDLE_TYPE_FABRIC

/// The driver's functions. Every member is set when driver() returned it.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*get_error_name)(Result, const char** name);
  Result (*get_error_string)(Result, const char** words);

  Result (*device_get)(Device*, int ordinal);
  Result (*device_get_count)(int*);
  Result (*device_get_name)(char* name, int length, Device);
  Result (*device_get_attribute)(int* value, int attribute, Device);
  Result (*device_total_memory)(size_t* bytes, Device);
  Result (*primary_context_retain)(Context*, Device);
  Result (*primary_context_release)(Device);
  Result (*context_push)(Context);
  Result (*context_pop)(Context*);
  Result (*context_synchronize)();
  Result (*can_access_peer)(int* can, Device, Device peer);

  Result (*memory_info)(size_t* free, size_t* total);
  Result (*memory_allocate)(Address*, size_t);
  Result (*memory_free)(Address);
  Result (*granularity)(size_t*, const AllocationProperties*, int option);
  Result (*address_reserve)(Address*, size_t size, size_t alignment, Address wanted,
                            unsigned long long flags);
  Result (*address_free)(Address, size_t size);
  Result (*create)(Handle*, size_t size, const AllocationProperties*, unsigned long long flags);
  Result (*release)(Handle);
  Result (*map)(Address, size_t size, size_t offset, Handle, unsigned long long flags);
  Result (*unmap)(Address, size_t size);
  Result (*set_access)(Address, size_t size, const AccessDescription*, size_t count);

  Result (*event_create)(Event*, unsigned flags);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, Stream);
  Result (*event_query)(Event);
  Result (*event_synchronize)(Event);
  Result (*stream_wait_event)(Stream, Event, unsigned flags);
  Result (*stream_is_capturing)(Stream, int* status);
  Result (*exchange_capture_mode)(int* mode);

  /// "CUDA_ERROR_OUT_OF_MEMORY"; never nullptr.
  const char* error_name(Result) const noexcept;
};

/// The driver, loaded once per process, or nullptr: driver_problem() says why. Not started: before init() a
/// process can fork, and its child start the driver. Thread-safe.
const Driver* driver() noexcept;
/// What is wrong and what to do, as one sentence; "" when driver() is there.
const char* driver_problem() noexcept;

}  // namespace memoir::cuda
