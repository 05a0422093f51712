// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <set>
#include <vector>

#include "runtime.h"

using namespace fake;

namespace {

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

/// Host memory that was asked for as pinned.
std::set<const void*>& pinned() {
  static std::set<const void*>* const all = new std::set<const void*>;
  return *all;
}

cudaError_t copy(void* to, const void* from, size_t size, cudaStream_t handle, bool waits) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  if (size == 0) return cudaSuccess;
  Operation operation{.kind = Operation::Kind::kCopy, .address = address_of(to), .size = size};
  operation.source = address_of(from);
  operation.to_host = !is_accessible(address_of(to), 1);
  operation.from_host = !is_accessible(address_of(from), 1);
  if (!operation.to_host && !operation.from_host &&
      (!may_use(device_of(operation.address), operation.source, size) ||
       !may_use(device_of(operation.source), operation.address, size))) {
    misuse("a copy between devices, one of which may not use the other's memory");
  }
  if (operation.from_host && !pinned().contains(from) && stream->capturing < 0) {
    // Pageable memory may change as soon as this returns.
    const auto* const bytes = static_cast<const unsigned char*>(from);
    const auto kept = std::make_shared<std::vector<unsigned char>>(bytes, bytes + size);
    operation.source = address_of(kept->data());
    queue(*stream, operation);
    queue(*stream, {.kind = Operation::Kind::kCall, .call = [kept] {}});
  } else {
    queue(*stream, operation);
  }
  if ((waits || (operation.to_host && !pinned().contains(to))) && stream->capturing < 0) run_stream(*stream);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, size_t size, cudaStream_t handle) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  queue(*stream, {.kind = Operation::Kind::kFill,
                  .address = address_of(to),
                  .size = size,
                  .value = static_cast<uint64_t>(value)});
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t size) {
  const Current current;
  Address address = 0;
  const Result result = cuMemAlloc_v2(&address, size);
  *pointer = reinterpret_cast<void*>(address);
  return fail(result);
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const Current current;
  {
    // The driver waits for all that is queued before it takes memory away.
    const std::lock_guard<std::recursive_mutex> lock(state().mutex);
    while (!state().any_capture() && run_one()) {
    }
  }
  return fail(cuMemFree_v2(address_of(pointer)));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Current current;
  return fail(cuMemGetInfo_v2(free, total));
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  *pointer = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  pinned().insert(*pointer);
  return *pointer != nullptr ? cudaSuccess : fail(kOutOfMemory);
}

cudaError_t cudaFreeHost(void* pointer) {
  {
    const std::lock_guard<std::recursive_mutex> lock(state().mutex);
    pinned().erase(pointer);
  }
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  *attributes = {};
  const bool there = is_accessible(address_of(pointer), 1);
  attributes->type = there                        ? cudaMemoryTypeDevice
                     : pinned().contains(pointer) ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeUnregistered;
  attributes->device = there ? current_device() : -1;
  attributes->devicePointer = there ? const_cast<void*>(pointer) : nullptr;
  attributes->hostPointer = there ? nullptr : const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  return copy(to, from, size, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, size, stream, false);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return copy(to, from, size, stream, false);
}
cudaError_t cudaMemset(void* to, int value, size_t size) { return set(to, value, size, nullptr); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return set(to, value, size, stream);
}

// Not there: sharing with other processes, and the driver's own pool.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return fail(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return fail(cudaErrorNotSupported); }
cudaError_t cudaIpcCloseMemHandle(void*) { return fail(cudaErrorNotSupported); }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return fail(cudaErrorNotSupported); }

}  // extern "C"
