// SPDX-License-Identifier: Apache-2.0
//
// memoir's declarations of the driver's types next to cuda.h, where CMake found one (PyTorch's wheels bring
// it).
#include "doctest/doctest.h"
#include "memoir/arena/cuda_driver.h"

#ifdef MEMOIR_CUDA_HEADER
#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace cuda = memoir::cuda;

namespace {

template <class Ours, class Theirs>
constexpr bool alike = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

/// One driver function: as many parameters, each of the same size, passed in the same kind of register.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class... Ours, class... Theirs>
struct SameCall<cuda::Result (*)(Ours...), CUresult (*)(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
      return ((sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);
    } else {
      return false;
    }
  }();
};

#define SAME(member, function) \
  static_assert(SameCall<decltype(cuda::Driver::member), decltype(&function)>::value, #function)

SAME(init, cuInit);
SAME(get_error_name, cuGetErrorName);
SAME(get_error_string, cuGetErrorString);
SAME(device_get, cuDeviceGet);
SAME(device_get_count, cuDeviceGetCount);
SAME(device_get_name, cuDeviceGetName);
SAME(device_get_attribute, cuDeviceGetAttribute);
SAME(device_total_memory, cuDeviceTotalMem_v2);
SAME(primary_context_retain, cuDevicePrimaryCtxRetain);
SAME(primary_context_release, cuDevicePrimaryCtxRelease_v2);
SAME(context_push, cuCtxPushCurrent_v2);
SAME(context_pop, cuCtxPopCurrent_v2);
SAME(context_synchronize, cuCtxSynchronize);
SAME(can_access_peer, cuDeviceCanAccessPeer);
SAME(memory_info, cuMemGetInfo_v2);
SAME(memory_allocate, cuMemAlloc_v2);
SAME(memory_free, cuMemFree_v2);
SAME(granularity, cuMemGetAllocationGranularity);
SAME(address_reserve, cuMemAddressReserve);
SAME(address_free, cuMemAddressFree);
SAME(create, cuMemCreate);
SAME(release, cuMemRelease);
SAME(map, cuMemMap);
SAME(unmap, cuMemUnmap);
SAME(set_access, cuMemSetAccess);
SAME(event_create, cuEventCreate);
SAME(event_destroy, cuEventDestroy_v2);
SAME(event_record, cuEventRecord);
SAME(event_query, cuEventQuery);
SAME(event_synchronize, cuEventSynchronize);
SAME(stream_wait_event, cuStreamWaitEvent);
SAME(stream_is_capturing, cuStreamIsCapturing);
SAME(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);

}  // namespace

TEST_CASE("the declarations of the driver are those of cuda.h") {
  CHECK(alike<cuda::AllocationProperties, CUmemAllocationProp>);
  CHECK(alike<cuda::AccessDescription, CUmemAccessDesc>);
  CHECK(alike<cuda::Location, CUmemLocation>);
  CHECK(offsetof(cuda::AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
  CHECK(offsetof(cuda::AllocationProperties, win32_metadata) ==
        offsetof(CUmemAllocationProp, win32HandleMetaData));
  CHECK(offsetof(cuda::AllocationProperties, gpu_direct_rdma_capable) ==
        offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
  CHECK(offsetof(cuda::AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
  const cuda::AllocationProperties properties;
  CHECK(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED);
  CHECK(properties.handle_types == CU_MEM_HANDLE_TYPE_NONE);
  CHECK(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(cuda::AccessDescription{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuda::kNotReady == CUDA_ERROR_NOT_READY);
  CHECK(cuda::kMinimumGranularity == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  CHECK(cuda::kDisableTiming == CU_EVENT_DISABLE_TIMING);
  CHECK(cuda::kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuda::kNotCapturing == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(cuda::kAttributeVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  CHECK(cuda::kAttributeRdmaWithVirtualMemory == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
}
#else
TEST_CASE("the declarations of the driver are those of cuda.h" * doctest::skip()) {}
#endif
