// SPDX-License-Identifier: Apache-2.0
//
// The rules of docs/formats.md that one record after the other must keep, so that whoever reads a trace can
// rely on them. Text, sites and checksums are the reader's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "memoir/trace/event.h"
#include "memoir/trace/object_table.h"

namespace memoir {

class EventChecker {
 public:
  /// Why this record cannot follow those before it; empty when it can. Not to be asked again after a refusal.
  std::string refusal(const Event& event);

 private:
  struct Device {
    std::map<Offset, Size> segments;  // live, by address
    Size reserved = 0;                // bytes of segments
    Size mapped = 0;
  };

  std::string allocate(const Event& event);
  std::string of_object(const Event& event);
  std::string segment(const Event& event);
  std::string out_of_memory(const Event& event);
  std::string pool(const Event& event);

  ObjectTable objects_;                             // value: bytes; tag: the device and what is known
  std::unordered_map<std::uint64_t, bool> passes_;  // true while it runs
  std::unordered_map<std::uint16_t, Device> devices_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> pools_;  // private ones, by PyTorch's numbers
  Size live_ = 0;
  Tick last_time_ = 0;
};

}  // namespace memoir
