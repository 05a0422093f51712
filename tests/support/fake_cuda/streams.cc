// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "fake_cuda.h"
#include "state.h"

namespace fake {

State& state() {
  static State* const once = new State;
  return *once;
}

Thread& thread() {
  thread_local Thread it;
  return it;
}

void misuse(const std::string& text) {
  if (!state().was_reset) state().misuses.push_back(text);
}

Result entered(const char* function) {
  ++state().calls[function];
  const auto found = state().failures.find(function);
  if (found == state().failures.end()) return 0;
  State::Failure& failure = found->second;
  if (failure.after > 0) return --failure.after, 0;
  if (failure.times <= 0) return 0;
  --failure.times;
  return failure.result;
}

Stream* State::of(memoir::cuda::Stream stream) {
  if (stream == nullptr) return &default_stream;
  Stream* const it = reinterpret_cast<Stream*>(stream);
  return streams.contains(it) ? it : nullptr;
}

bool State::any_capture() const {
  for (const Stream* stream : streams) {
    if (stream->capturing >= 0) return true;
  }
  return false;
}

Result unsafe_during_capture(const char* function) {
  if (thread().mode == memoir::cuda::kCaptureModeRelaxed || !state().any_capture()) return 0;
  misuse(std::string(function) + " during a capture, and not in the relaxed mode");
  spoil_captures();
  return kCaptureUnsupported;
}

void spoil_captures() {
  for (Stream* stream : state().streams) {
    if (stream->capturing >= 0) state().graphs[static_cast<size_t>(stream->capturing)].invalid = true;
  }
}

bool is_in_use(Address address, uint64_t size) {
  const auto meet = [&](Address begin, uint64_t bytes) {
    return bytes != 0 && begin < address + size && address < begin + bytes;
  };
  const auto touches = [&](const Operation& operation) {
    return meet(operation.address, operation.size) ||
           (operation.kind == Operation::Kind::kCopy && meet(operation.source, operation.size));
  };
  const auto any = [&](const auto& operations) {
    for (const Operation& operation : operations) {
      if (touches(operation)) return true;
    }
    return false;
  };
  if (any(state().default_stream.queue)) return true;
  for (const Stream* stream : state().streams) {
    if (any(stream->queue)) return true;
  }
  return false;
}

namespace {

bool can_run(const Stream& stream) {
  if (stream.queue.empty()) return false;
  const Operation& next = stream.queue.front();
  return next.kind != Operation::Kind::kWait || *next.moment;
}

void fill(unsigned char* bytes, const Operation& operation) {
  if (operation.width == 1) {
    std::memset(bytes, static_cast<int>(operation.value), operation.size);
    return;
  }
  const auto width = static_cast<uint64_t>(operation.width);
  for (uint64_t at = 0; at + width <= operation.size; at += width) {
    std::memcpy(bytes + at, &operation.value, width);
  }
}

void run_next(Stream& stream) {
  const Operation operation = stream.queue.front();
  stream.queue.pop_front();
  switch (operation.kind) {
    case Operation::Kind::kRecord:
      *operation.moment = true;
      return;
    case Operation::Kind::kWait:
      return;
    default:
      break;
  }
  if (operation.kind == Operation::Kind::kCall) return operation.call();
  const bool copies = operation.kind == Operation::Kind::kCopy;
  if ((!operation.to_host && !is_accessible(operation.address, operation.size)) ||
      (copies && !operation.from_host && !is_accessible(operation.source, operation.size))) {
    misuse("a kernel uses memory that is not there");
    return;
  }
  auto* const bytes = reinterpret_cast<unsigned char*>(operation.address);
  if (copies) {
    std::memmove(bytes, reinterpret_cast<const void*>(operation.source), operation.size);
    return;
  }
  if (operation.kind == Operation::Kind::kFill) {
    fill(bytes, operation);
    return;
  }
  for (uint64_t i = 0; i < operation.size; ++i) {
    if (bytes[i] == static_cast<unsigned char>(operation.value)) continue;
    misuse("a kernel finds " + std::to_string(bytes[i]) + " at byte " + std::to_string(i) + " of " +
           std::to_string(operation.size) + ", where " + std::to_string(operation.value) + " was written");
    return;
  }
}

Stream* stream_of(void* stream) { return state().of(static_cast<memoir::cuda::Stream>(stream)); }

}  // namespace

void queue(Stream& stream, const Operation& operation) {
  if (stream.capturing >= 0) {
    state().graphs[static_cast<size_t>(stream.capturing)].operations.push_back(operation);
  } else {
    stream.queue.push_back(operation);
  }
}

bool run_one() {
  std::vector<Stream*> able;
  if (can_run(state().default_stream)) able.push_back(&state().default_stream);
  for (Stream* stream : state().streams) {
    if (can_run(*stream)) able.push_back(stream);
  }
  if (able.empty()) return false;
  run_next(*able[state().random() % able.size()]);
  return true;
}

bool run_until(const std::shared_ptr<bool>& moment) {
  while (!*moment) {
    if (!run_one()) return false;
  }
  return true;
}

void record(Event& event, Stream& stream) {
  event.graph = stream.capturing;
  event.reached = std::make_shared<bool>(false);
  if (event.graph < 0) queue(stream, {.kind = Operation::Kind::kRecord, .moment = event.reached});
}

Result wait(Stream& stream, const Event& event) {
  if (event.graph >= 0) {  // the stream becomes a part of the capture, whose operations are kept in order
    stream.capturing = event.graph;
    return 0;
  }
  if (stream.capturing >= 0) {
    state().graphs[static_cast<size_t>(stream.capturing)].invalid = true;
    return kCaptureIsolation;
  }
  if (event.reached != nullptr) queue(stream, {.kind = Operation::Kind::kWait, .moment = event.reached});
  return 0;
}

bool run_stream(Stream& stream) {
  while (!stream.queue.empty()) {
    if (!run_one()) return false;  // any stream's: others may run ahead of this one
  }
  return true;
}

}  // namespace fake

using namespace fake;

#define LOCKED(function)                                           \
  const std::lock_guard<std::recursive_mutex> lock(state().mutex); \
  if (const Result wanted = entered(function); wanted != 0) return wanted

extern "C" {

Result cuEventCreate(Event** event, unsigned flags) {
  LOCKED("cuEventCreate");
  if (flags != memoir::cuda::kDisableTiming) misuse("an event with timing: slow");
  *event = new Event;
  state().events.insert(*event);
  return 0;
}

Result cuEventDestroy_v2(Event* event) {
  LOCKED("cuEventDestroy");
  if (state().events.erase(event) == 0) {
    misuse("cuEventDestroy of no event");
    return kInvalidHandle;
  }
  delete event;
  return 0;
}

Result cuEventRecord(Event* event, memoir::cuda::Stream to) {
  LOCKED("cuEventRecord");
  Stream* const stream = state().of(to);
  if (!state().events.contains(event) || stream == nullptr) {
    misuse("cuEventRecord of no event, or on no stream");
    return kInvalidHandle;
  }
  if (stream->capturing >= 0) misuse("cuEventRecord on a stream that is captured");
  record(*event, *stream);
  return 0;
}

Result cuEventQuery(Event* event) {
  LOCKED("cuEventQuery");
  if (!state().events.contains(event)) {
    misuse("cuEventQuery of no event");
    return kInvalidHandle;
  }
  if (event->graph >= 0) {
    misuse("cuEventQuery of a captured event");
    return kCapturedEvent;
  }
  if (const Result result = unsafe_during_capture("cuEventQuery")) return result;
  return event->reached == nullptr || *event->reached ? 0 : kNotReady;
}

Result cuEventSynchronize(Event* event) {
  LOCKED("cuEventSynchronize");
  if (!state().events.contains(event) || event->graph >= 0) {
    misuse("cuEventSynchronize of no event, or of a captured one");
    return kInvalidHandle;
  }
  if (const Result result = unsafe_during_capture("cuEventSynchronize")) return result;
  if (event->reached != nullptr && !run_until(event->reached)) misuse("cuEventSynchronize waits for ever");
  return 0;
}

Result cuStreamWaitEvent(memoir::cuda::Stream stream, Event* event, unsigned flags) {
  LOCKED("cuStreamWaitEvent");
  Stream* const it = state().of(stream);
  if (it == nullptr || !state().events.contains(event) || flags != 0) {
    misuse("cuStreamWaitEvent of no event, or on no stream");
    return kInvalidHandle;
  }
  const Result result = wait(*it, *event);
  if (result == kCaptureIsolation) misuse("cuStreamWaitEvent: a captured stream waits for one that is not");
  return result;
}

Result cuStreamIsCapturing(memoir::cuda::Stream stream, int* status) {
  LOCKED("cuStreamIsCapturing");
  const Stream* const it = state().of(stream);
  if (it == nullptr) {
    misuse("cuStreamIsCapturing of no stream");
    return kInvalidHandle;
  }
  *status = it->capturing >= 0 ? 1 : 0;
  return 0;
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(thread().mode, *mode);
  return 0;
}

void* fake_stream_create(void) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Stream* const stream = new Stream;
  state().streams.insert(stream);
  return stream;
}

void fake_launch_fill(void* stream, uint64_t address, uint64_t size, int value) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  queue(*stream_of(stream), {.kind = Operation::Kind::kFill,
                             .address = address,
                             .size = size,
                             .value = static_cast<uint64_t>(value)});
}

void fake_launch_check(void* stream, uint64_t address, uint64_t size, int value) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  queue(*stream_of(stream), {.kind = Operation::Kind::kCheck,
                             .address = address,
                             .size = size,
                             .value = static_cast<uint64_t>(value)});
}

void fake_program_waits(void* from, void* to) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  Event event;
  record(event, *stream_of(from));
  wait(*stream_of(to), event);
}

int fake_run(int operations) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  int ran = 0;
  while (ran < operations && run_one()) ++ran;
  return ran;
}

void fake_run_all(void) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  while (run_one()) {
  }
}

void fake_seed(unsigned seed) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().random.seed(seed);
}

int fake_capture_begin(void* stream) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const int number = static_cast<int>(state().graphs.size());
  state().graphs.emplace_back();
  stream_of(stream)->capturing = number;
  return number;
}

int fake_capture_end(void* stream) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const int number = std::exchange(stream_of(stream)->capturing, -1);
  return state().graphs[static_cast<size_t>(number)].invalid ? 0 : 1;
}

void fake_graph_launch(int graph, void* stream) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  for (const Operation& operation : state().graphs[static_cast<size_t>(graph)].operations) {
    queue(*stream_of(stream), operation);
  }
}

void fake_fail(const char* function, int after, int times, int result) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().failures[function] = {after, times, result};
}

uint64_t fake_calls(const char* function) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return state().calls[function];
}

int fake_misuse_count(void) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return static_cast<int>(state().misuses.size());
}

const char* fake_misuse(int index) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  if (index < 0 || index >= static_cast<int>(state().misuses.size())) return "";
  return state().misuses[static_cast<size_t>(index)].c_str();
}

}  // extern "C"
