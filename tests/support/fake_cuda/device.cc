// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "fake_cuda.h"
#include "state.h"

using namespace fake;

#define LOCKED(function)                                           \
  const std::lock_guard<std::recursive_mutex> lock(state().mutex); \
  if (const Result wanted = entered(function); wanted != 0) return wanted

namespace {
bool is_device(int device) { return device >= 0 && device < static_cast<int>(state().devices.size()); }
/// A context is its device's number, one up: never nullptr.
memoir::cuda::Context context_of(int device) {
  return reinterpret_cast<memoir::cuda::Context>(static_cast<uintptr_t>(device) + 1);
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
}  // namespace

extern "C" {

Result cuInit(unsigned) {
  {
    const std::lock_guard<std::recursive_mutex> lock(state().mutex);
    if (state().devices.empty()) {
      fake_reset(static_cast<int>(number_from("FAKE_CUDA_DEVICES", 1)),
                 number_from("FAKE_CUDA_MIB", 64) << 20, uint64_t{2} << 20);
    }
  }
  LOCKED("cuInit");
  return 0;
}

Result cuGetErrorName(Result result, const char** name) {
  switch (result) {
    case 0:
      *name = "CUDA_SUCCESS";
      return 0;
    case kInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return 0;
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return 0;
    case 101:
      *name = "CUDA_ERROR_INVALID_DEVICE";
      return 0;
    case kCaptureUnsupported:
      *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
      return 0;
    case 999:
      *name = "CUDA_ERROR_UNKNOWN";
      return 0;
    default:
      *name = nullptr;
      return kInvalidValue;
  }
}

Result cuGetErrorString(Result result, const char** words) { return cuGetErrorName(result, words); }

Result cuDeviceGet(int* device, int ordinal) {
  LOCKED("cuDeviceGet");
  *device = ordinal;
  return is_device(ordinal) ? 0 : 101;
}

Result cuDeviceGetCount(int* count) {
  LOCKED("cuDeviceGetCount");
  *count = static_cast<int>(state().devices.size());
  return 0;
}

Result cuDeviceGetName(char* name, int length, int device) {
  LOCKED("cuDeviceGetName");
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU %d", device);
  return 0;
}

Result cuDeviceGetAttribute(int* value, int attribute, int) {
  LOCKED("cuDeviceGetAttribute");
  const State::Features& features = state().features;
  *value = 0;
  if (attribute == memoir::cuda::kAttributeVirtualMemory) *value = state().granularity != 0;
  if (attribute == memoir::cuda::kAttributeRdmaWithVirtualMemory) *value = features.rdma;
  if (attribute == memoir::cuda::kAttributeFileDescriptorHandles) *value = (features.handle_types & 1) != 0;
  if (attribute == memoir::cuda::kAttributeFabricHandles) *value = (features.handle_types & 8) != 0;
  return 0;
}

Result cuDeviceTotalMem_v2(size_t* bytes, int device) {
  LOCKED("cuDeviceTotalMem");
  *bytes = state().devices[static_cast<size_t>(device)].capacity;
  return 0;
}

Result cuDevicePrimaryCtxRetain(memoir::cuda::Context* context, int device) {
  LOCKED("cuDevicePrimaryCtxRetain");
  *context = context_of(device);
  return 0;
}

Result cuDevicePrimaryCtxRelease_v2(int) {
  LOCKED("cuDevicePrimaryCtxRelease");
  return 0;
}

Result cuDeviceCanAccessPeer(int* can, int device, int peer) {
  LOCKED("cuDeviceCanAccessPeer");
  *can = device != peer ? 1 : 0;
  return 0;
}

Result cuCtxSynchronize() {
  LOCKED("cuCtxSynchronize");
  if (state().any_capture()) {
    misuse("cuCtxSynchronize during a capture");
    return kCaptureUnsupported;
  }
  while (run_one()) {
  }
  return 0;
}

Result cuCtxPushCurrent_v2(memoir::cuda::Context context) {
  thread().contexts.push_back(static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1);
  return 0;
}

Result cuCtxPopCurrent_v2(memoir::cuda::Context* context) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (thread().contexts.empty()) {
    misuse("cuCtxPopCurrent without a context");
    return kInvalidContext;
  }
  *context = context_of(thread().contexts.back());
  thread().contexts.pop_back();
  return 0;
}

}  // extern "C"
