// SPDX-License-Identifier: Apache-2.0
//
// Which object lives at an address, while a trace is read: a hash table of four bytes a place, as large as
// what lives at once; the addresses stand in the events.
#pragma once

#include <cstdint>
#include <vector>

#include "memoir/base/keyed_hash.h"
#include "memoir/base/metadata.h"
#include "memoir/trace/event.h"

namespace memoir {

class LiveAddresses {
 public:
  static constexpr std::uint32_t kMostEvents = (std::uint32_t{1} << 30) - 1;

  enum State : std::uint32_t {
    kPlain = 0,     // an object
    kAbsorbed = 1,  // a tensor, with the malloc that served it
    kHusk = 2,      // that malloc, after the tensor's end
  };
  /// An entry: the event that allocates, and its state.
  class Place {
   public:
    Place() = default;
    Place(std::uint32_t event, State state) noexcept : bits_((event + 1) << 2 | state) {}
    bool is_empty() const noexcept { return bits_ == 0; }
    std::uint32_t event() const noexcept { return (bits_ >> 2) - 1; }
    State state() const noexcept { return static_cast<State>(bits_ & 3); }

   private:
    std::uint32_t bits_ = 0;
  };

  /// The events are the caller's; those that are inserted keep their addresses.
  explicit LiveAddresses(const MetadataArray<Event>& events) noexcept : events_(events) {}

  /// nullptr when nothing lives there. Valid until the next insert() or erase().
  Place* find(std::uint64_t address) noexcept {
    if (places_.empty()) return nullptr;
    for (std::size_t at = home(address);; at = next(at)) {
      if (places_[at].is_empty()) return nullptr;
      if (address_of(places_[at]) == address) return &places_[at];
    }
  }
  /// An address that is not there, by the event that has it, which is one of the first kMostEvents.
  void insert(Place place) {
    if (4 * (size_ + 1) > 3 * places_.size()) grow();
    put(place);
    ++size_;
  }
  void erase(Place* place) noexcept {
    // Close the gap (Knuth 6.4, algorithm R): move back what the hole would cut off from its home.
    auto hole = static_cast<std::size_t>(place - places_.data());
    const std::size_t mask = places_.size() - 1;
    for (std::size_t at = next(hole); !places_[at].is_empty(); at = next(at)) {
      if (((at - home(address_of(places_[at]))) & mask) < ((at - hole) & mask)) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole] = {};
    --size_;
  }

 private:
  std::uint64_t address_of(Place place) const noexcept { return events_[place.event()].address; }
  std::size_t home(std::uint64_t address) const noexcept {
    return keyed_hash(address, key_) & (places_.size() - 1);
  }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }
  void put(Place place) noexcept {
    std::size_t at = home(address_of(place));
    while (!places_[at].is_empty()) at = next(at);
    places_[at] = place;
  }
  void grow() {
    std::vector<Place> old(places_.empty() ? 1024 : 2 * places_.size());
    old.swap(places_);
    for (const Place each : old) {
      if (!each.is_empty()) put(each);
    }
  }

  const MetadataArray<Event>& events_;
  std::uint64_t key_ = hash_key();
  std::vector<Place> places_;  // a power of two, at most three quarters taken
  std::size_t size_ = 0;
};

}  // namespace memoir
