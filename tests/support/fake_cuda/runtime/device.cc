// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "runtime.h"

namespace fake {

namespace {
thread_local cudaError_t t_last = cudaSuccess;
thread_local int t_device = 0;

bool is_device(int device) {
  cuInit(0);
  return device >= 0 && device < static_cast<int>(state().devices.size());
}

int not_supported() { return cudaErrorNotSupported; }
}  // namespace

cudaError_t fail(Result result) {
  if (result != 0 && result != cudaErrorNotReady) t_last = static_cast<cudaError_t>(result);
  return static_cast<cudaError_t>(result);
}

int& current_device() { return t_device; }

Current::Current() {
  memoir::cuda::Context context = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, t_device);
  cuCtxPushCurrent_v2(context);
}

Current::~Current() {
  memoir::cuda::Context context = nullptr;
  cuCtxPopCurrent_v2(&context);
}

}  // namespace fake

using namespace fake;

extern "C" {

// What PyTorch asks the driver itself, beyond what memoir does.

Result cuCtxGetCurrent(memoir::cuda::Context* context) { return cuDevicePrimaryCtxRetain(context, t_device); }

Result cuCtxSetCurrent(memoir::cuda::Context context) {
  t_device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
  return 0;
}

Result cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* status) {
  const std::string name(symbol);
  void* found = ::dlsym(RTLD_DEFAULT, (name + "_v2").c_str());
  if (found == nullptr) found = ::dlsym(RTLD_DEFAULT, symbol);
  *function = found != nullptr ? found : reinterpret_cast<void*>(&not_supported);
  if (status != nullptr) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  cuInit(0);
  *count = static_cast<int>(state().devices.size());
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  t_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "Fake GPU %d", device);
  properties->totalGlobalMem = state().devices[static_cast<size_t>(device)].capacity;
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->l2CacheSize = 50 << 20;
  properties->unifiedAddressing = properties->concurrentKernels = 1;
  for (int axis = 0; axis < 3; ++axis) {
    properties->maxThreadsDim[axis] = axis < 2 ? 1024 : 64;
    properties->maxGridSize[axis] = axis == 0 ? 0x7fffffff : 65535;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
  const Current current;
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (state().any_capture()) {
    spoil_captures();
    return fail(kCaptureUnsupported);
  }
  return fail(cuCtxSynchronize());
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetLastError() { return std::exchange(t_last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return t_last; }

const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  cuGetErrorName(error, &name);
  return name != nullptr ? name : "an error";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
