// SPDX-License-Identifier: Apache-2.0
//
// What a timeline of a trace shows, whatever the format of its file. One walk over the events tells a sink:
//
//   live bytes per device and stream (counters)      ___/\__/\____
//   reserved bytes per device                        ____----_____
//   every object from its allocation to its free     [ aten::empty, 4096 bytes ]   on the lowest free lane
//   passes                                           [ pass 1        ]
//   requests that failed                                     !
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "memoir/trace/read/trace.h"

namespace memoir {

class TimelineSink {
 public:
  virtual ~TimelineSink() = default;

  /// Before anything else of it is said. `streams`: it has more than one.
  virtual void device(std::uint16_t number, bool streams) = 0;
  /// Bytes live on one stream of a device; no stream: on all of it.
  virtual void live(std::uint16_t device, std::optional<StreamId> stream, Tick time, Size bytes) = 0;
  virtual void reserved(std::uint16_t device, Tick time, Size bytes) = 0;
  /// Of the objects of a device, no two of one lane overlap. `address`: the record that says its address, or
  /// nullptr.
  virtual void begins(const Event& allocation, std::uint32_t lane, const Event* address) = 0;
  /// `freed`: false at the end of the trace.
  virtual void ends(const Event& allocation, std::uint32_t lane, Tick time, bool freed) = 0;
  virtual void free_requested(const Event& allocation, std::uint32_t lane, Tick time) = 0;
  virtual void out_of_memory(const Event& event) = 0;
  virtual void pass(const Event& event) = 0;
};

/// Tells it all, in order of time; each counter has a value at the end, too. Gives how many objects there
/// were.
std::uint64_t walk_timeline(const Trace& trace, TimelineSink& sink);

}  // namespace memoir
