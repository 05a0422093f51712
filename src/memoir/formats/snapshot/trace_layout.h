// SPDX-License-Identifier: Apache-2.0
//
// A trace as exports need it: event by event in order of devices, every object with an address and its end.
//
// Addresses are the recorded ones. A device of whose objects some have none gets a layout of its own: its
// events are replayed through the plain heap (heap/plain/span_heap.h), from kBase on. A device that has no
// segments gets some: the stretches of address space that its objects lie in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memoir/trace/objects/lives.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

class TraceLayout {
 public:
  static constexpr std::uint64_t kBase = 0x7e0000000000;

  struct Object {
    std::uint64_t address = 0;
    Size size = 0;
    std::uint32_t allocated = 0;   // event
    std::uint32_t freed = kNever;  // event
    bool requested = false;        // it has a free_requested
    std::uint32_t pool = 0;
  };
  static constexpr std::uint32_t kNever = Life::kNever;

  struct Device {
    std::vector<std::uint32_t> events;  // allocations, frees, segments..., in order
    std::size_t history = 0;            // events[history]: the first that is not of time 0
    bool recorded = true;               // its addresses are the recorded ones
    std::vector<Range> segments;        // made up, held from the beginning on; by address
  };

  /// Throws Error for more events than 2^32, and for objects that no device's address space holds.
  explicit TraceLayout(const Trace& trace);

  const Trace& trace() const noexcept { return trace_; }
  /// By number; those in between are empty.
  std::span<const Device> devices() const noexcept { return devices_; }
  /// The object that this event of the trace, by its index, speaks of (allocate, free, free_requested).
  const Object& object(std::uint32_t event) const noexcept { return objects_[lives_.number(event)]; }
  std::span<const Object> objects() const noexcept { return objects_; }

 private:
  void replay(Device& device);
  void make_segments(Device& device);

  const Trace& trace_;
  Lives lives_;
  std::vector<Object> objects_;  // by their numbers there
  std::vector<Device> devices_;
};

}  // namespace memoir
