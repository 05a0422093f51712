// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <unordered_map>

#include "runtime.h"

using namespace fake;

namespace {

/// The names of kernels by the functions that stand for them on the host.
std::unordered_map<const void*, const char*>& kernels() {
  static auto* const all = new std::unordered_map<const void*, const char*>;
  return *all;
}

/// Bytes of the type whose mangled name begins here; 0 when it is none of the simple ones.
int width_of(const char* mangled) {
  switch (*mangled) {
    case 'b':
    case 'a':
    case 'h':
      return 1;
    case 's':
    case 't':
      return 2;
    case 'i':
    case 'j':
    case 'f':
      return 4;
    case 'l':
    case 'm':
    case 'd':
      return 8;
    default:
      return std::strncmp(mangled, "N3c104HalfE", 11) == 0 ||
                     std::strncmp(mangled, "N3c108BFloat16E", 15) == 0
                 ? 2
                 : 0;
  }
}

/// PyTorch's fills of contiguous memory: (int count, FillFunctor<T>, std::array<char*, 1>).
void launch(const void* function, void** arguments, cudaStream_t handle) {
  const auto found = kernels().find(function);
  if (found == kernels().end() || arguments == nullptr) return;
  const char* const functor = std::strstr(found->second, "FillFunctorI");
  if (functor == nullptr || std::strstr(found->second, "vectorized_elementwise_kernel") == nullptr) return;
  Operation fill{.kind = Operation::Kind::kFill, .width = width_of(functor + 12)};
  if (fill.width == 0) return;
  int count = 0;
  std::memcpy(&count, arguments[0], sizeof count);
  std::memcpy(&fill.value, arguments[1], static_cast<size_t>(fill.width));
  std::memcpy(&fill.address, arguments[2], sizeof fill.address);
  fill.size = static_cast<uint64_t>(count) * static_cast<uint64_t>(fill.width);
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (Stream* const stream = stream_of(handle)) queue(*stream, fill);
}

thread_local struct {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
} t_call;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  kernels()[function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  t_call = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = t_call.grid;
  *block = t_call.block;
  *shared = t_call.shared;
  *static_cast<cudaStream_t*>(stream) = t_call.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t,
                               cudaStream_t stream) {
  launch(kernel, arguments, stream);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** arguments, size_t,
                             cudaStream_t stream) {
  launch(function, arguments, stream);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function,
                                void** arguments) {
  launch(function, arguments, configuration->stream);
  return cudaSuccess;
}
cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                                   unsigned) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

}  // extern "C"
