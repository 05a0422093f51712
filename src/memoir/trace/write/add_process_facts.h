// SPDX-License-Identifier: Apache-2.0
//
// What was seen of a process from outside while it was recorded, added to its trace afterwards: its mappings
// at some moments, and the names of its threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memoir/trace/process_record.h"

namespace memoir {

struct SeenMappings {
  struct Group {
    ProcessRecord::Region region = ProcessRecord::Region::kOther;
    std::string name;
    std::uint64_t count = 0;
    Size mapped = 0, resident = 0, dirty = 0, swapped = 0;  // bytes
  };
  Tick time = 0;  // nanoseconds since the recording began
  ProcessRecord::Moment moment = ProcessRecord::Moment::kRegular;
  Size resident = 0;          // bytes
  std::vector<Group> groups;  // at most 256
};
struct SeenThread {
  std::uint32_t number = 0;  // as in events
  std::uint64_t system_id = 0;
  std::string name;
};

/// Adds them to the trace of version 1 at `path`; the mappings in the order of their times. Throws Error as
/// add_symbols() does.
void add_process_facts(const std::string& path, std::span<const SeenMappings> mappings,
                       std::span<const SeenThread> threads);

}  // namespace memoir
