// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime without a device: addresses that nobody touches, up to a cap, and events that are done when
// told. PyTorch's own allocator runs on it (torch_allocator.cc).
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kBase = std::uint64_t{1} << 40;  // offset 0

struct Device {
  std::uint64_t memory = 0, cap = 0, taken = 0;
  std::uint64_t next = 0;  // offset of the next segment
  std::map<std::uint64_t, std::uint64_t> segments;
  std::uint64_t stride = 0;  // of reserved areas
  std::vector<bool> areas;
  std::map<std::uint64_t, std::uint64_t> handles;
  std::uint64_t next_handle = 1;
  std::uint64_t unmapped_begin = 0, unmapped_end = 0;  // a range being unmapped, unit by unit
  std::map<std::uint64_t, int> capturing;              // captures by stream, 99: of all
  std::uint64_t events_done = 0, events = 0;
  std::string log;
};

Device& device() {
  static Device the_device;
  return the_device;
}

void note(char kind, std::uint64_t begin, std::uint64_t size) {
  device().log += std::string(1, kind) + ' ' + std::to_string(begin) + ' ' + std::to_string(size) + '\n';
}

void end_unmapping() {
  Device& d = device();
  if (d.unmapped_end != d.unmapped_begin)
    note('U', d.unmapped_begin - kBase, d.unmapped_end - d.unmapped_begin);
  d.unmapped_begin = d.unmapped_end = 0;
}

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  const bool captured =
      device().capturing[99] > 0 || device().capturing[reinterpret_cast<std::uint64_t>(stream) / 4096] > 0;
  return captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}

struct Event {
  std::uint64_t number = 0;
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// --- for torch_allocator.cc ---
EXPORT void fake_configure(std::uint64_t memory, std::uint64_t cap, std::uint64_t stride) {
  device().memory = memory;
  device().cap = cap;
  device().stride = stride;
}
EXPORT void fake_capture(std::uint64_t stream, int more) { device().capturing[stream] += more; }
EXPORT void fake_complete_events() { device().events_done = device().events; }
EXPORT const char* fake_log() {  // what was asked of the device since the last call
  static std::string log;
  end_unmapping();
  log.swap(device().log);
  device().log.clear();
  return log.c_str();
}

// --- the runtime ---
EXPORT cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
EXPORT cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
EXPORT cudaError_t cudaSetDevice(int) { return cudaSuccess; }
EXPORT cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  p->totalGlobalMem = device().memory;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  *f = device().cap - device().taken;
  *t = device().memory;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMalloc(void** p, size_t size) {
  Device& d = device();
  if (d.taken + size > d.cap) return cudaErrorMemoryAllocation;
  d.taken += size;
  d.segments[d.next] = size;
  note('S', d.next, size);
  *p = reinterpret_cast<void*>(kBase + d.next);
  d.next += size;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFree(void* p) {
  if (p == nullptr) return cudaSuccess;
  Device& d = device();
  const auto at = d.segments.find(reinterpret_cast<std::uint64_t>(p) - kBase);
  if (at == d.segments.end()) std::abort();
  note('R', at->first, at->second);
  d.taken -= at->second;
  d.segments.erase(at);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) {
  reinterpret_cast<Event*>(e)->number = ++device().events;
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) {
  return reinterpret_cast<Event*>(e)->number <= device().events_done ? cudaSuccess : cudaErrorNotReady;
}
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete reinterpret_cast<Event*>(e);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t) { return end_unmapping(), cudaSuccess; }
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* s) {
  return *s = status_of(stream), cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* s,
                                            unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                            const cudaGraphEdgeData**, size_t*) {
  return *s = status_of(stream), cudaSuccess;
}
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
EXPORT cudaError_t cudaGetLastError() { return cudaSuccess; }
EXPORT const char* cudaGetErrorString(cudaError_t) { return "out of fake memory"; }
EXPORT const char* cudaGetErrorName(cudaError_t) { return "fake"; }
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* l, int* h) { return *l = 0, *h = 0, cudaSuccess; }

#define NOTHING(name)                              \
  EXPORT cudaError_t fake_##name() __asm__(#name); \
  cudaError_t fake_##name() { return cudaSuccess; }
NOTHING(cudaDeviceCanAccessPeer)
NOTHING(cudaDeviceEnablePeerAccess)
NOTHING(cudaDeviceSynchronize)
NOTHING(cudaDeviceGetDefaultMemPool)
NOTHING(cudaEventElapsedTime)
NOTHING(cudaFreeAsync)
NOTHING(cudaGraphNodeGetDependencies)
NOTHING(cudaIpcCloseMemHandle)
NOTHING(cudaIpcGetMemHandle)
NOTHING(cudaIpcOpenMemHandle)
NOTHING(cudaMallocAsync)
NOTHING(cudaMemPoolGetAttribute)
NOTHING(cudaMemPoolSetAccess)
NOTHING(cudaMemPoolSetAttribute)
NOTHING(cudaMemPoolTrimTo)
NOTHING(cudaMemcpy)
NOTHING(cudaMemcpyAsync)
NOTHING(cudaMemcpyPeerAsync)
NOTHING(cudaStreamCreateWithPriority)
NOTHING(cudaStreamQuery)
NOTHING(cudaStreamWaitEvent)

// --- the driver, asked for by name ---
namespace {
CUresult address_reserve(CUdeviceptr* p, size_t size, size_t, CUdeviceptr, unsigned long long) {
  Device& d = device();
  if (size > d.stride) std::abort();
  size_t area = 0;
  while (area < d.areas.size() && d.areas[area]) ++area;
  if (area == d.areas.size()) d.areas.push_back(false);
  d.areas[area] = true;
  *p = kBase + area * d.stride;
  return CUDA_SUCCESS;
}
CUresult address_free(CUdeviceptr p, size_t) {
  device().areas[(p - kBase) / device().stride] = false;
  return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* h, size_t size, const CUmemAllocationProp*,
                unsigned long long) {
  Device& d = device();
  if (d.taken + size > d.cap) return CUDA_ERROR_OUT_OF_MEMORY;
  d.taken += size;
  d.handles[*h = d.next_handle++] = size;
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle h) {
  device().taken -= device().handles.at(h);
  device().handles.erase(h);
  return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr p, size_t size, const CUmemAccessDesc*, size_t) {
  end_unmapping();
  note('M', p - kBase, size);
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr p, size_t size) {
  Device& d = device();
  if (p != d.unmapped_end) {
    end_unmapping();
    d.unmapped_begin = p;
  }
  d.unmapped_end = p + size;
  return CUDA_SUCCESS;
}
CUresult attribute(int* v, CUdevice_attribute, CUdevice) { return *v = 0, CUDA_SUCCESS; }
CUresult get(CUdevice* d, int) { return *d = 0, CUDA_SUCCESS; }
CUresult error_string(CUresult, const char** s) { return *s = "out of fake memory", CUDA_SUCCESS; }
CUresult granularity(size_t* g, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  return *g = 2u << 20, CUDA_SUCCESS;
}
CUresult nothing() { return CUDA_SUCCESS; }
}  // namespace

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** f, unsigned,
                                                    unsigned long long, cudaDriverEntryPointQueryResult* r) {
  const std::map<std::string, void*> known = {
      {"cuMemAddressReserve", reinterpret_cast<void*>(address_reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(address_free)},
      {"cuMemCreate", reinterpret_cast<void*>(create)},
      {"cuMemRelease", reinterpret_cast<void*>(release)},
      {"cuMemMap", reinterpret_cast<void*>(map)},
      {"cuMemSetAccess", reinterpret_cast<void*>(set_access)},
      {"cuMemUnmap", reinterpret_cast<void*>(unmap)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(attribute)},
      {"cuDeviceGet", reinterpret_cast<void*>(get)},
      {"cuGetErrorString", reinterpret_cast<void*>(error_string)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(granularity)},
  };
  const auto at = known.find(symbol);
  *f = at == known.end() ? reinterpret_cast<void*>(nothing) : at->second;
  if (r != nullptr) *r = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// --- NVML, which PyTorch asks about fabrics and about who else uses the device ---
#define NVML(name) \
  EXPORT int name() { return 0; }
NVML(nvmlInit_v2)
NVML(nvmlDeviceGetNvLinkRemoteDeviceType)
NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2)
NVML(nvmlDeviceGetGpuFabricInfoV)
NVML(nvmlSystemGetDriverVersion)
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** handle) {
  *handle = &device();
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned, void** handle) {
  *handle = &device();
  return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
