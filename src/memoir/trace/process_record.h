// SPDX-License-Identifier: Apache-2.0
//
// What a trace says of the process that was recorded, besides its events: threads, modules, mappings,
// counters, losses, its end. Views live as long as the trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memoir/base/units.h"

namespace memoir {

struct ProcessRecord {
  struct Thread {
    std::uint32_t number = 0;     // as in events
    std::uint64_t system_id = 0;  // the kernel's
    std::string_view name;
    std::uint32_t name_id = 0;  // in the file
    Tick begin = 0;             // nanoseconds since the recording began
    std::optional<Tick> end;
  };
  struct Module {
    std::uint32_t id = 0;
    std::string_view path;
    std::string build_id;  // in hex
    std::uint64_t base = 0;
    struct Range {
      std::uint64_t begin = 0, size = 0;  // addresses
      std::uint64_t file_offset = 0;      // bytes
      std::uint32_t protection = 0;       // PROT_*
    };
    std::vector<Range> ranges;
    Tick loaded = 0;
    std::optional<Tick> unloaded;
  };
  enum class Moment : std::uint8_t { kStart = 1, kRegular = 2, kPeak = 3, kEnd = 4 };
  enum class Region : std::uint8_t {
    kHeap = 1,         // [heap], brk
    kAnonymous = 2,    // private, without a name
    kThreadStack = 3,  // of threads
    kMainStack = 4,
    kFile = 5,      // files and libraries; the name is the path
    kShared = 6,    // shared memory without a file
    kRecorder = 7,  // the recorder's own
    kOther = 8,
  };
  struct Mappings {
    struct Group {
      Region region = Region::kOther;
      std::string_view name;
      std::uint32_t name_id = 0;
      std::uint64_t count = 0;
      Size mapped = 0, resident = 0, dirty = 0, swapped = 0;  // bytes
    };
    Tick time = 0;
    Moment moment = Moment::kRegular;
    Size resident = 0;  // bytes, of the whole process
    std::vector<Group> groups;
  };
  struct Counter {
    Tick time = 0;
    std::string_view name;
    std::uint32_t name_id = 0;
    std::uint64_t value = 0;
  };
  struct End {
    Tick time = 0;
    bool by_exec = false;      // it became another program
    std::uint32_t status = 0;  // exit status, or 128 + signal
  };

  std::vector<Thread> threads;
  std::vector<Module> modules;
  std::vector<Mappings> mappings;
  std::vector<Counter> counters;
  std::optional<End> end;
};

/// What a trace does not hold, and knows of.
struct Losses {
  Size bytes = 0;                    // torn
  Size cut_bytes = 0;                // known to be cut off, or where no block can be read
  std::uint64_t blocks = 0;          // missing, torn, or there twice
  std::uint64_t no_room = 0;         // events that found no memory or disk
  std::uint64_t interrupted = 0;     // events of signal handlers inside the recorder
  std::uint64_t other = 0;           // events
  std::uint64_t deep_frames = 0;     // frames beyond the limit
  std::uint64_t unread_frames = 0;   // frames without unwind information
  std::uint64_t unknown_frees = 0;   // of addresses that no event allocated: from before, or lost
  std::uint64_t missed_frees = 0;    // an address was allocated again without a free
  std::uint64_t unknown_unmaps = 0;  // of memory that was mapped before

  std::uint64_t events() const noexcept { return no_room + interrupted + other; }
};

}  // namespace memoir
