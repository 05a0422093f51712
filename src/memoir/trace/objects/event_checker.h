// SPDX-License-Identifier: Apache-2.0
//
// The rules of docs/reference/formats.md that one record after the other must keep, so that whoever reads a
// trace can rely on them. Text, sites and checksums are the reader's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memoir/base/metadata.h"
#include "memoir/trace/event.h"
#include "memoir/trace/objects/object_states.h"

namespace memoir {

class EventChecker {
 public:
  /// Why this record cannot follow `before`, which it took and which the caller keeps; empty when it can, and
  /// then it is to be put behind them. Not to be asked again after a refusal.
  std::string refusal(const Event& event, const MetadataArray<Event>& before);

 private:
  struct Device {
    std::map<Offset, Size> segments;  // live, by address
    Size reserved = 0;                // bytes of segments
    Size mapped = 0;
  };

  enum Mark : std::uint32_t { kHasAddress = 1, kRequested = 2 };

  std::string allocate(const Event& event, const MetadataArray<Event>& before);
  std::string of_object(const Event& event, const MetadataArray<Event>& before);
  std::string segment(const Event& event);
  std::string out_of_memory(const Event& event);
  std::string pool(const Event& event);

  ObjectStates objects_;                                       // live ones: the event that allocates it
  std::unordered_map<std::uint64_t, bool, KeyedHash> passes_;  // true while it runs
  std::unordered_map<std::uint16_t, Device> devices_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> pools_;  // private ones, by PyTorch's numbers
  Size live_ = 0;
  Tick last_time_ = 0;
};

}  // namespace memoir
