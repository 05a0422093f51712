// SPDX-License-Identifier: Apache-2.0
//
// What one device was asked for, in order: the events of a trace made ready to be replayed many times. Object
// ids become small numbers and every check is done once, so that a replay is a walk over two flat arrays.
//
//   events    a 7          a 9          f 7      a 4          f 9
//   steps     allocate 0 | allocate 1 | free 0 | allocate 2 | free 1
//
// What was live before the recording began is allocated first, as the trace has it: the steps before
// start_steps(). Memory is reusable at kFree; that its free was asked for earlier does not matter here.
// Objects of 0 bytes are left out: no heap sees them.
//
// A request that the recorded allocator could not serve is asked for as any other, and freed at once: nobody
// knows for how long the program would have kept it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memoir/base/units.h"
#include "memoir/plan/plan.h"
#include "memoir/trace/event.h"

namespace memoir {

class Trace;

class Workload {
 public:
  struct Object {
    ObjectId id = 0;  // of the trace
    Size size = 0;    // bytes as asked, > 0
    SiteId site = kNoSite;
    StreamId stream = 0;         // numbered in the order of their first allocations
    std::uint32_t begin = 0;     // the step that allocates it
    std::uint32_t end = 0;       // the step that frees it; steps().size() when it outlives the trace
    std::uint16_t thread = 0;    // that allocates it: the lower bits of its number in the trace
    std::uint16_t freed_on = 0;  // that frees it
    std::uint16_t pool = 0;      // private ones in the order of their first mention; 0: the default pool
    std::uint8_t alignment_log2 = 0;
    Size alignment() const noexcept { return Size{1} << alignment_log2; }  // bytes
  };
  static_assert(sizeof(Object) == 48);
  enum class Kind : std::uint32_t { kAllocate, kFree };
  struct Step {
    Tick time = 0;                  // nanoseconds since the recording began
    std::uint32_t event = 0;        // its index in the trace
    std::uint32_t object : 31 = 0;  // of objects()
    Kind kind : 1 = Kind::kAllocate;
  };
  static_assert(sizeof(Step) == 16);

  /// A segment or memory that the recorded allocator had from the device, or gave back.
  struct DeviceCall {
    std::uint32_t event = 0;  // its index in the trace
    std::uint32_t step = 0;   // the one that follows it
    EventKind kind = EventKind::kNone;
    StreamId stream = 0;     // as the objects'
    Range range;             // recorded addresses
    std::uint32_t pool = 0;  // as the objects'
    bool gives() const noexcept {
      return kind == EventKind::kSegmentAllocate || kind == EventKind::kSegmentMap;
    }
  };

  /// A request that the recorded allocator could not serve, and what stood in its way.
  struct Failure {
    std::uint32_t event = 0;           // its index in the trace
    std::uint32_t object = kNotAsked;  // of objects()
    Size asked = 0;                    // bytes, as recorded: PyTorch's are rounded up
    Size live = 0;                     // bytes live then, as asked
    Size reserved = 0;                 // bytes that the recorded allocator held then; 0 where no trace says
    Size device_free = 0;              // bytes that the device had free
    SiteId site = kNoSite;
    StreamId stream = 0;     // as the objects'
    std::uint32_t pool = 0;  // as the objects'
    /// What the allocator could have had at most: what it held and what was free.
    Size cap() const noexcept { return reserved + device_free; }
  };
  static constexpr std::uint32_t kNotAsked = ~std::uint32_t{0};
  static constexpr Size kHopeless = Size{1} << 42;  // bytes

  /// Which of the failures are asked for.
  enum class Ask : std::uint8_t { kNone, kLast, kAll };

  static constexpr size_t kMostPools = 4096;

  /// Failures of kHopeless bytes or more, which no device has, are not asked for. Throws Error for a trace
  /// beyond 2^31 events or with more pools, or whose frees do not follow their allocations.
  explicit Workload(std::span<const Event> events, std::uint16_t device = 0, Ask failures = Ask::kAll);
  /// The same of a whole trace, whose events are forgotten on the way (Trace::forget_events()): ten million
  /// take a third of the memory then. After an Error some of them are gone, too.
  static Workload take(Trace& trace, std::uint16_t device = 0, Ask failures = Ask::kAll);

  /// Where the names of the objects' sites are; kept alive by the caller. nullptr: nobody said.
  const Trace* trace() const noexcept { return trace_; }
  void set_trace(const Trace& trace) noexcept { trace_ = &trace; }

  std::uint16_t device() const noexcept { return device_; }  // of the trace
  std::span<const Object> objects() const noexcept { return objects_; }
  std::span<const Step> steps() const noexcept { return steps_; }
  /// Allocations and frees.
  std::uint64_t operations() const noexcept { return steps_.size(); }

  Size peak_live() const noexcept { return peak_live_; }             // bytes as asked: no layout needs less
  std::uint32_t peak_event() const noexcept { return peak_event_; }  // where it is reached first
  Size largest() const noexcept { return largest_; }                 // bytes of the largest that was served
  std::uint64_t most_live() const noexcept { return most_live_; }    // objects live at once
  size_t streams() const noexcept { return streams_; }               // that allocate
  size_t pools() const noexcept { return pools_; }                   // private ones, and the default one
  std::uint64_t empty() const noexcept { return empty_; }            // objects of 0 bytes, left out

  /// In order; those that are not asked for, too.
  std::span<const Failure> failures() const noexcept { return failures_; }

  // What an importer knows of the recorded allocator. Its state when the history began stands at time 0 of a
  // trace.

  /// Steps that allocate what was live then.
  size_t start_steps() const noexcept { return start_steps_; }
  /// The first `start_calls()` are what it held then.
  std::span<const DeviceCall> device_calls() const noexcept { return device_calls_; }
  size_t start_calls() const noexcept { return start_calls_; }
  /// Where it had put that object; kNoOffset where the trace does not say.
  Offset recorded_address(size_t object) const noexcept {
    return object < addresses_.size() ? addresses_[object] : kNoOffset;
  }

  /// The same as a planning problem, buffer i for object i: lifetimes in steps, half-open.
  Problem problem() const;

  /// What each pool alone was asked for, pool 0 first; without what an importer knows.
  std::vector<Workload> by_pool() const;

 private:
  Workload() = default;
  class Reader;
  void add(const Object& object, Tick time, std::uint32_t event);
  void end(std::uint32_t object, Tick time, std::uint32_t event);
  void add_step(std::uint32_t object, Kind kind, Tick time, std::uint32_t event);

  std::uint16_t device_ = 0;
  const Trace* trace_ = nullptr;
  std::vector<Object> objects_;
  std::vector<Step> steps_;
  std::vector<Offset> addresses_;  // by object, up to the last that has one
  std::vector<DeviceCall> device_calls_;
  std::vector<Failure> failures_;
  size_t start_steps_ = 0;
  size_t start_calls_ = 0;
  Size peak_live_ = 0;
  std::uint32_t peak_event_ = 0;
  Size largest_ = 0;
  size_t streams_ = 0;
  size_t pools_ = 1;
  Size live_ = 0;  // while it is made
  std::uint64_t objects_live_ = 0;
  std::uint64_t empty_ = 0;
  std::uint64_t most_live_ = 0;
};

/// The devices that the events allocate on, or fail to, ascending; {0} when there are none.
std::vector<std::uint16_t> devices_of(std::span<const Event> events);

}  // namespace memoir
