// SPDX-License-Identifier: Apache-2.0
//
// What the fake driver keeps; everything under one recursive lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memoir/arena/cuda_driver.h"

namespace fake {

using memoir::cuda::Address;
using memoir::cuda::Handle;
using memoir::cuda::Result;

constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kInvalidHandle = 400,
                 kNotReady = 600, kNotSupported = 801, kCaptureUnsupported = 900, kCaptureInvalidated = 901,
                 kCaptureIsolation = 905, kCapturedEvent = 907;

struct Stream;

struct Operation {
  enum class Kind { kFill, kCheck, kCopy, kCall, kRecord, kWait } kind = Kind::kFill;
  Address address = 0;
  uint64_t size = 0;  // bytes at address, and at source
  uint64_t value = 0;
  int width = 1;                 // bytes of value, which is repeated
  std::shared_ptr<bool> moment;  // kRecord sets it, kWait waits for it
  Address source = 0;            // kCopy: from here; one of the two may be of the host
  bool to_host = false, from_host = false;
  std::function<void()> call;  // kCall
};

struct Event {
  int graph = -1;                 // recorded last on a stream that was captured into this graph
  std::shared_ptr<bool> reached;  // of the last record; nullptr: never recorded
};

struct Stream {
  std::deque<Operation> queue;
  int capturing = -1;  // the number of the graph
};

struct Graph {
  std::vector<Operation> operations;
  bool invalid = false;
};

struct PhysicalMemory {
  uint64_t size = 0;
  uint64_t file_offset = 0;
  int device = 0;
  int mappings = 0;
  bool released = false;
};

struct Mapping {
  uint64_t size = 0;
  Handle handle = 0;
  bool accessible = false;
  std::set<int> accessors;  // devices
};

struct Device {
  uint64_t capacity = 0;
  uint64_t used = 0;
  uint64_t peak = 0;
  uint64_t foreign = 0;
};

struct State {
  std::recursive_mutex mutex;
  std::vector<Device> devices;
  uint64_t granularity = 1 << 21;
  int file = -1;  // all physical memory, punched where it is released
  uint64_t file_end = 0;
  uint64_t next_handle = 1;
  std::map<Handle, PhysicalMemory> memory;
  std::map<Address, uint64_t> reservations;
  std::map<Address, Mapping> mappings;
  std::map<Address, std::pair<uint64_t, int>> allocations;  // size, device
  struct Features {
    int rdma = 0, handle_types = 0, refused_rdma = 0, refused_handle_types = 0;
  } features;
  bool was_reset = false;  // misuse is the reset's from then on
  struct Placing {
    uint64_t (*place)(void* context, uint64_t size) = nullptr;
    void (*gone)(void* context, uint64_t address) = nullptr;
    void* context = nullptr;
  } placing;
  std::set<Event*> events;
  std::set<Stream*> streams;
  std::vector<Graph> graphs;
  Stream default_stream;
  std::mt19937 random{1};
  std::map<std::string, uint64_t> calls;
  struct Failure {
    int after = 0, times = 0;
    Result result = 0;
  };
  std::map<std::string, Failure> failures;
  std::deque<std::string> misuses;  // a deque: texts that were handed out stay where they are

  Stream* of(memoir::cuda::Stream stream);
  bool any_capture() const;
};

State& state();
void misuse(const std::string& text);
/// Counts the call; the result that a test wants of it, or 0.
Result entered(const char* function);
/// False when any byte of the range is not device memory that may be accessed.
bool is_accessible(Address address, uint64_t size);
/// The device whose memory this is.
int device_of(Address address);
/// False when memory that is mapped there is not for the device.
bool may_use(int device, Address address, uint64_t size);
/// True when an operation that is queued, or of a graph that may be replayed, uses the range.
bool is_in_use(Address address, uint64_t size);
/// Makes whatever is captured now useless, as the driver does after a call that must not be made then.
void spoil_captures();
/// Runs one operation of some stream that can go on; false when none can.
bool run_one();
/// Runs until `moment` is reached; false when that never comes.
bool run_until(const std::shared_ptr<bool>& moment);
/// Runs until nothing is queued on the stream any more; false when that never comes.
bool run_stream(Stream& stream);
/// What a program does with an event and a stream; memoir must not record one in a capture, a program may.
void record(Event& event, Stream& stream);
Result wait(Stream& stream, const Event& event);
/// Queues the operation, or makes it a part of the graph that the stream is captured into.
void queue(Stream& stream, const Operation& operation);
/// A call that must not be made while a stream is captured in the global mode: it fails and spoils the
/// capture.
Result unsafe_during_capture(const char* function);
/// The capture mode and the current devices of this thread.
struct Thread {
  int mode = 0;
  std::vector<int> contexts;
};
Thread& thread();

}  // namespace fake
