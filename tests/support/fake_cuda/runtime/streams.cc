// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "runtime.h"

namespace fake {

Stream* stream_of(cudaStream_t stream) {
  if (stream == cudaStreamLegacy || stream == cudaStreamPerThread) stream = nullptr;
  return state().of(reinterpret_cast<memoir::cuda::Stream>(stream));
}

}  // namespace fake

using namespace fake;

#define LOCKED const std::lock_guard<std::recursive_mutex> lock(state().mutex)

namespace {

Event* event_of(cudaEvent_t event) {
  Event* const it = reinterpret_cast<Event*>(event);
  return state().events.contains(it) ? it : nullptr;
}

/// What must not be asked for while something is captured, unless in the relaxed mode.
bool is_unsafe() {
  if (thread().mode == memoir::cuda::kCaptureModeRelaxed || !state().any_capture()) return false;
  spoil_captures();
  return true;
}

cudaError_t synchronize(Stream& stream) {
  if (stream.capturing >= 0 || is_unsafe()) return fail(kCaptureUnsupported);
  return run_stream(stream) ? cudaSuccess : fail(cudaErrorUnknown);
}

struct Instance {
  std::vector<Operation> operations;
};

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  LOCKED;
  Stream* const made = new Stream;
  state().streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  LOCKED;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  run_stream(*stream);
  state().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  LOCKED;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  if (is_unsafe()) return fail(kCaptureUnsupported);
  return stream->queue.empty() ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  LOCKED;
  Stream* const stream = stream_of(handle);
  return stream != nullptr ? synchronize(*stream) : fail(kInvalidHandle);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned) {
  LOCKED;
  Stream* const stream = stream_of(stream_handle);
  const Event* const event = event_of(event_handle);
  if (stream == nullptr || event == nullptr) return fail(kInvalidHandle);
  return fail(wait(*stream, *event));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  LOCKED;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  queue(*stream, {.kind = Operation::Kind::kCall, .call = [function, data] { function(data); }});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  LOCKED;
  Event* const made = new Event;
  state().events.insert(made);
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  LOCKED;
  Event* const event = event_of(handle);
  if (event == nullptr) return fail(kInvalidHandle);
  state().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  LOCKED;
  Event* const event = event_of(event_handle);
  Stream* const stream = stream_of(stream_handle);
  if (event == nullptr || stream == nullptr) return fail(kInvalidHandle);
  record(*event, *stream);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  LOCKED;
  const Event* const event = event_of(handle);
  if (event == nullptr) return fail(kInvalidHandle);
  if (event->graph >= 0) return fail(kCapturedEvent);
  if (is_unsafe()) return fail(kCaptureUnsupported);
  return event->reached == nullptr || *event->reached ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  LOCKED;
  const Event* const event = event_of(handle);
  if (event == nullptr) return fail(kInvalidHandle);
  if (event->graph >= 0) return fail(kCapturedEvent);
  if (is_unsafe()) return fail(kCaptureUnsupported);
  return event->reached == nullptr || run_until(event->reached) ? cudaSuccess : fail(cudaErrorUnknown);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  const int before = std::exchange(thread().mode, static_cast<int>(*mode));
  *mode = static_cast<cudaStreamCaptureMode>(before);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  LOCKED;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr || stream == &state().default_stream) return fail(kCaptureUnsupported);
  fake_capture_begin(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  LOCKED;
  *graph = nullptr;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr || stream->capturing < 0) return fail(kInvalidValue);
  const int number = stream->capturing;
  for (Stream* other : state().streams) {
    if (other->capturing == number) other->capturing = -1;
  }
  if (state().graphs[static_cast<size_t>(number)].invalid) return fail(kCaptureInvalidated);
  *graph = reinterpret_cast<cudaGraph_t>(static_cast<uintptr_t>(number) + 1);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* dependency_count) {
  LOCKED;
  const Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  const int number = stream->capturing;
  *status = number < 0                                            ? cudaStreamCaptureStatusNone
            : state().graphs[static_cast<size_t>(number)].invalid ? cudaStreamCaptureStatusInvalidated
                                                                  : cudaStreamCaptureStatusActive;
  if (id != nullptr) *id = static_cast<unsigned long long>(number) + 1;
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(static_cast<uintptr_t>(number) + 1);
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (dependency_count != nullptr) *dependency_count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  *count = 1;  // kernels that do nothing leave no trace; PyTorch warns of graphs without any
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
  LOCKED;
  const size_t number = reinterpret_cast<uintptr_t>(graph) - 1;
  if (number >= state().graphs.size()) return fail(kInvalidValue);
  *instance = reinterpret_cast<cudaGraphExec_t>(new Instance{state().graphs[number].operations});
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t handle) {
  LOCKED;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return fail(kInvalidHandle);
  for (const Operation& operation : reinterpret_cast<Instance*>(instance)->operations)
    queue(*stream, operation);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  delete reinterpret_cast<Instance*>(instance);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }

}  // extern "C"
