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

void misuse(const std::string& text) { state().misuses.push_back(text); }

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
  for (Stream* stream : state().streams) {
    if (stream->capturing >= 0) state().graphs[static_cast<size_t>(stream->capturing)].invalid = true;
  }
  return kCaptureUnsupported;
}

bool is_in_use(Address address, uint64_t size) {
  const auto touches = [&](const Operation& operation) {
    return operation.size != 0 && operation.address < address + size &&
           address < operation.address + operation.size;
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
  if (!is_accessible(operation.address, operation.size)) {
    misuse("a kernel uses memory that is not there");
    return;
  }
  auto* const bytes = reinterpret_cast<unsigned char*>(operation.address);
  if (operation.kind == Operation::Kind::kFill) {
    std::memset(bytes, operation.value, operation.size);
    return;
  }
  for (uint64_t i = 0; i < operation.size; ++i) {
    if (bytes[i] == static_cast<unsigned char>(operation.value)) continue;
    misuse("a kernel finds " + std::to_string(bytes[i]) + " at byte " + std::to_string(i) + " of " +
           std::to_string(operation.size) + ", where " + std::to_string(operation.value) + " was written");
    return;
  }
}

void queue(Stream& stream, const Operation& operation) {
  if (stream.capturing >= 0) {
    state().graphs[static_cast<size_t>(stream.capturing)].operations.push_back(operation);
  } else {
    stream.queue.push_back(operation);
  }
}

Stream* stream_of(void* stream) { return state().of(static_cast<memoir::cuda::Stream>(stream)); }

}  // namespace

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
  event->captured = stream->capturing >= 0;
  if (event->captured) misuse("cuEventRecord on a stream that is captured");
  event->reached = std::make_shared<bool>(false);
  queue(*stream, {.kind = Operation::Kind::kRecord, .moment = event->reached});
  return 0;
}

Result cuEventQuery(Event* event) {
  LOCKED("cuEventQuery");
  if (!state().events.contains(event)) {
    misuse("cuEventQuery of no event");
    return kInvalidHandle;
  }
  if (event->captured) {
    misuse("cuEventQuery of a captured event");
    return kCapturedEvent;
  }
  if (const Result result = unsafe_during_capture("cuEventQuery")) return result;
  return event->reached == nullptr || *event->reached ? 0 : kNotReady;
}

Result cuEventSynchronize(Event* event) {
  LOCKED("cuEventSynchronize");
  if (!state().events.contains(event) || event->captured) {
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
  if (it->capturing >= 0 && !event->captured) {
    misuse("cuStreamWaitEvent: a captured stream waits for one that is not");
    state().graphs[static_cast<size_t>(it->capturing)].invalid = true;
    return kCaptureIsolation;
  }
  if (event->reached != nullptr) queue(*it, {.kind = Operation::Kind::kWait, .moment = event->reached});
  return 0;
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
  queue(*stream_of(stream), {Operation::Kind::kFill, address, size, value, nullptr});
}

void fake_launch_check(void* stream, uint64_t address, uint64_t size, int value) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  queue(*stream_of(stream), {Operation::Kind::kCheck, address, size, value, nullptr});
}

void fake_program_waits(void* from, void* to) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const auto moment = std::make_shared<bool>(false);
  queue(*stream_of(from), {.kind = Operation::Kind::kRecord, .moment = moment});
  queue(*stream_of(to), {.kind = Operation::Kind::kWait, .moment = moment});
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
