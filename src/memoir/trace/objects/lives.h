// SPDX-License-Identifier: Apache-2.0
//
// Who lives when: the objects of a trace, numbered in the order of their allocations, and which of them each
// event speaks of. Plans, simulations, timelines and snapshots are made from it, so that none of them looks
// objects up by itself.
//
//   events   0: a 7   1: a 9   2: address 9   3: f 7   4: a 4     lives   0  [0, 3)       object 7
//   number   0        1        1              0        2                  1  [1, kNever)  object 9
//                                                                         2  [4, kNever)  object 4
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memoir/trace/event.h"

namespace memoir {

struct Life {
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};

  std::uint32_t begin = 0;     // the event that allocates it: its size, site, stream, device and thread
  std::uint32_t end = kNever;  // the event that frees it; kNever: it outlives the trace
  Offset address = kNoOffset;  // where the recorded allocator had put it; kNoOffset: the trace does not say
  std::uint32_t pool = 0;      // of that address, as in the trace; 0: the default pool
  bool is_free_requested = false;  // it has a kFreeRequested

  bool operator==(const Life&) const = default;
};

/// Takes 8 bytes an object where ids are handed out one after the other, as recordings of programs do.
class Lives {
 public:
  /// Throws Error, naming the event, for an object that is allocated twice, or freed, let go of or given an
  /// address when it is not live (a Trace has no such); and for 2^32 events or more. The events are kept
  /// alive by the caller.
  explicit Lives(std::span<const Event> events);

  std::size_t size() const noexcept { return begins_.size(); }
  /// In the order of their allocations.
  Life operator[](std::size_t number) const noexcept {
    const Offset address = allocation(number).address;
    Life life{begins_[number], ends_[number], address != 0 ? address : kNoOffset};
    if (!told_.empty()) told_[number].add_to(life);
    return life;
  }
  /// Its begin and end alone.
  std::uint32_t begin(std::size_t number) const noexcept { return begins_[number]; }
  std::uint32_t end(std::size_t number) const noexcept { return ends_[number]; }
  const Event& allocation(std::size_t number) const noexcept { return events_[begins_[number]]; }
  /// Which life an event speaks of: an allocation, a free, an address, a free that is asked for.
  std::uint32_t number(std::size_t event) const noexcept {
    return numbers_.empty() ? static_cast<std::uint32_t>(events_[event].object - first_) : numbers_[event];
  }
  /// The same as columns, by number.
  std::span<const std::uint32_t> begins() const noexcept { return begins_; }
  std::span<const std::uint32_t> ends() const noexcept { return ends_; }

 private:
  /// What later events say of an object.
  struct Told {
    Offset address = kNoOffset;
    std::uint32_t pool = 0;
    bool is_free_requested = false;

    void add_to(Life& life) const noexcept {
      if (address != kNoOffset) life.address = address;
      life.pool = pool;
      life.is_free_requested = is_free_requested;
    }
  };

  std::span<const Event> events_;
  std::vector<std::uint32_t> begins_, ends_;  // by number
  std::vector<Told> told_;                    // by number; empty: nothing is told
  ObjectId first_ = 0;                        // id of number 0: the next ones follow
  std::vector<std::uint32_t> numbers_;        // by event, where they do not
};

/// A repetition of the program's unit of work.
struct Pass {
  static constexpr std::uint32_t kNever = Life::kNever;

  std::uint64_t number = 0;
  std::uint32_t thread = 0;    // the one that began it
  std::uint32_t begin = 0;     // the event
  std::uint32_t end = kNever;  // the event; kNever: the recording ended within it

  bool operator==(const Pass&) const = default;
};

/// In the order in which they begin. Ends without a begin are passed over.
std::vector<Pass> passes_of(std::span<const Event> events);

/// "event 12: object 7", for errors about an event.
std::string name_event(std::span<const Event> events, std::size_t event);

}  // namespace memoir
