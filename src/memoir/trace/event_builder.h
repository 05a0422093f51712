// SPDX-License-Identifier: Apache-2.0
//
// Makes events of operations: addresses become objects, stacks become sites, a tensor absorbs the malloc that
// served it. Operations come in the order in which they happened, as far as the lanes can tell.
#pragma once

#include <cstdint>
#include <string>

#include "memoir/trace/block_decoder.h"
#include "memoir/trace/event_checker.h"
#include "memoir/trace/live_addresses.h"
#include "memoir/trace/trace_data.h"

namespace memoir {

class EventBuilder {
 public:
  EventBuilder(TraceData& data, Only only) noexcept : data_(data), only_(only), live_(data.events) {}

  /// What a lane's operations may need to know of those before them.
  struct LaneState {
    std::uint64_t served = 0;        // the address that malloc gave last
    std::uint32_t served_stack = 0;  // and its stack
  };

  /// Whether another lane has to end first what lives at the operation's address, or to allocate it.
  bool waits_for(const BlockDecoder::Item& item) noexcept;
  /// Appends the events of an operation. What contradicts those before it is counted as lost. Throws Error for
  /// what cannot be; without the name of its block.
  void take(const BlockDecoder::Item& item, std::uint32_t thread, Tick time, LaneState& lane);

 private:
  void allocate(const BlockDecoder::Item& item, std::uint32_t thread, LaneState& lane);
  void free(const BlockDecoder::Item& item, std::uint32_t thread);
  void record(const BlockDecoder::Item& item);
  void segment(const BlockDecoder::Item& item);
  void end(LiveAddresses::Place* place, std::uint32_t thread, SiteId site);
  void name_objects(bool by_address);

  enum class Naming : std::uint8_t { kNone, kById, kByAddress };

  TraceData& data_;
  const Only only_;
  EventChecker checker_;  // of records
  LiveAddresses live_;    // of events by address
  Naming naming_ = Naming::kNone;
  ObjectId objects_ = 0;   // by address, so far
  Size live_bytes_ = 0;    // of those
  Size mapped_bytes_ = 0;  // by kMap
  Tick time_ = 0;          // of the last event
};

}  // namespace memoir
