// SPDX-License-Identifier: Apache-2.0
//
// Makes events of operations: addresses become objects, stacks become sites, a tensor absorbs the malloc that
// served it. Operations come in the order in which they happened, as far as the lanes can tell.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "memoir/trace/file/block_decoder.h"
#include "memoir/trace/objects/event_checker.h"
#include "memoir/trace/objects/live_addresses.h"
#include "memoir/trace/read/trace_data.h"

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
  /// Appends the events of an operation. What contradicts those before it is counted as lost. Throws Error
  /// for what cannot be; without the name of its block.
  /// `is_forced`: it waits for another lane's operation, which does not come within its tick.
  void take(const BlockDecoder::Item& item, std::uint32_t thread, Tick time, LaneState& lane, bool is_forced);
  /// Nothing more comes of the tick before: what was put off to its end is counted as missing.
  void end_tick();

 private:
  void allocate(const BlockDecoder::Item& item, std::uint32_t thread, LaneState& lane, bool is_forced);
  void free(const BlockDecoder::Item& item, std::uint32_t thread, bool is_forced);
  void record(const BlockDecoder::Item& item);
  void segment(const BlockDecoder::Item& item);
  void end(LiveAddresses::Place* place, std::uint32_t thread, SiteId site);
  void add_free(std::uint32_t allocation, std::uint32_t thread, SiteId site);
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

  // Within one tick lanes may be read in an order that cannot have been, since nothing but the addresses
  // tells them apart. It is put right as far as counts go: an object at an address that lives takes its
  // place, and gives it back at its free; a free that comes too early ends the next object there.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>, KeyedHash> covered_;  // events, by address
  std::unordered_map<std::uint64_t, std::uint64_t, KeyedHash> early_;                 // frees, by address
};

}  // namespace memoir
