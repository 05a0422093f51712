// SPDX-License-Identifier: Apache-2.0
#include "memoir/arena/cuda_driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace memoir::cuda {

namespace {

struct Loaded {
  Driver driver{};
  bool usable = false;
  char problem[512] = "";

  Loaded() noexcept {
    const char* const named = ::secure_getenv("MEMOIR_CUDA_DRIVER");
    const char* const path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);  // never closed: its threads outlive us
    if (library == nullptr) {
      const char* const why = ::dlerror();
      std::snprintf(
          problem, sizeof problem,
          "no CUDA driver on this machine (%s): memoir's device pools need an NVIDIA GPU and its driver",
          why != nullptr ? why : path);
      return;
    }
    usable = find_all(library, path);
  }

  template <class Function>
  bool find(void* library, const char* path, const char* symbol, Function*& function) noexcept {
    function = reinterpret_cast<Function*>(::dlsym(library, symbol));
    if (function != nullptr) return true;
    std::snprintf(problem, sizeof problem,
                  "the CUDA driver %s has no %s: memoir's device pools need the driver of CUDA 11.2 or newer",
                  path, symbol);
    return false;
  }

  bool find_all(void* library, const char* path) noexcept {
    const auto found = [&](const char* symbol, auto& function) {
      return find(library, path, symbol, function);
    };
    // The versioned names: what cuda.h of every toolkit since 11 calls them in the library.
    return found("cuInit", driver.init) && found("cuGetErrorName", driver.get_error_name) &&
           found("cuGetErrorString", driver.get_error_string) && found("cuDeviceGet", driver.device_get) &&
           found("cuDeviceGetCount", driver.device_get_count) &&
           found("cuDeviceGetName", driver.device_get_name) &&
           found("cuDeviceGetAttribute", driver.device_get_attribute) &&
           found("cuDeviceTotalMem_v2", driver.device_total_memory) &&
           found("cuDevicePrimaryCtxRetain", driver.primary_context_retain) &&
           found("cuDevicePrimaryCtxRelease_v2", driver.primary_context_release) &&
           found("cuCtxPushCurrent_v2", driver.context_push) &&
           found("cuCtxPopCurrent_v2", driver.context_pop) &&
           found("cuCtxSynchronize", driver.context_synchronize) &&
           found("cuDeviceCanAccessPeer", driver.can_access_peer) &&
           found("cuMemGetInfo_v2", driver.memory_info) && found("cuMemAlloc_v2", driver.memory_allocate) &&
           found("cuMemFree_v2", driver.memory_free) &&
           found("cuMemGetAllocationGranularity", driver.granularity) &&
           found("cuMemAddressReserve", driver.address_reserve) &&
           found("cuMemAddressFree", driver.address_free) && found("cuMemCreate", driver.create) &&
           found("cuMemRelease", driver.release) && found("cuMemMap", driver.map) &&
           found("cuMemUnmap", driver.unmap) && found("cuMemSetAccess", driver.set_access) &&
           found("cuEventCreate", driver.event_create) && found("cuEventDestroy_v2", driver.event_destroy) &&
           found("cuEventRecord", driver.event_record) && found("cuEventQuery", driver.event_query) &&
           found("cuEventSynchronize", driver.event_synchronize) &&
           found("cuStreamWaitEvent", driver.stream_wait_event) &&
           found("cuStreamIsCapturing", driver.stream_is_capturing) &&
           found("cuThreadExchangeStreamCaptureMode", driver.exchange_capture_mode);
  }
};

const Loaded& loaded() noexcept {
  static const Loaded* const once = new Loaded;  // outlives what runs during exit
  return *once;
}

}  // namespace

const char* Driver::error_name(Result result) const noexcept {
  const char* name = nullptr;
  if (get_error_name == nullptr || get_error_name(result, &name) != kSuccess || name == nullptr)
    return "unknown error";
  return name;
}

const Driver* driver() noexcept { return loaded().usable ? &loaded().driver : nullptr; }

const char* driver_problem() noexcept { return loaded().problem; }

}  // namespace memoir::cuda
