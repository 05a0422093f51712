// SPDX-License-Identifier: Apache-2.0
//
// Reads the small text traces of GPU allocators in tests/data/gpu (tests/data/README.md), for tests only. One
// event a line; numbers are decimal, sizes in bytes:
//
//   # a comment
//   s address size              a segment that the allocator held when the history began
//   i id size stream address    an object that was live then, `size` as asked; ascending addresses
//   b                           the history begins
//   a id size stream [address]  an allocation, `size` as asked; address absent or 0 in generated traces
//   f id                        a free
//   S|R address size            the device gave | took back a segment
//   M|U address size            memory was mapped | unmapped there (expandable segments)
//   O free asked                out of memory: bytes that the device had free, bytes asked of it
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "memoir/base/units.h"

namespace memoir::gpu_trace {

struct Event {
  enum class Kind { kAllocate, kFree, kSegmentAllocate, kSegmentFree, kMap, kUnmap, kOutOfMemory };
  Kind kind = Kind::kAllocate;
  ObjectId object = 0;         // kAllocate, kFree
  Size size = 0;               // kOutOfMemory: asked; else of the object (as asked) or the range
  StreamId stream = 0;         // kAllocate
  Offset address = kNoOffset;  // kNoOffset where the trace has none
  Size device_free = 0;        // kOutOfMemory

  bool is_allocate() const { return kind == Kind::kAllocate; }
  bool is_free() const { return kind == Kind::kFree; }
};

struct Object {  // live before the history began
  ObjectId id = 0;
  Size size = 0;
  StreamId stream = 0;
  Offset address = 0;
};

struct GpuTrace {
  std::vector<Range> segments;  // held when the history began: addresses
  std::vector<Object> live;     // then, by ascending address
  std::vector<Event> events;
  ObjectId objects = 0;  // every id is less
};

/// Reads a trace; throws std::runtime_error naming the file and line that it cannot read.
inline GpuTrace read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  GpuTrace trace;
  std::string line;
  bool begun = false;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line.substr(1));
    const auto next = [&] {
      std::uint64_t value = 0;
      if (!(in >> value))
        throw std::runtime_error(path + ":" + std::to_string(number) + ": a number is missing");
      return value;
    };
    const auto add = [&](Event event) {
      if (event.is_allocate() && event.object >= trace.objects) trace.objects = event.object + 1;
      trace.events.push_back(event);
    };
    const auto range = [&](Event::Kind kind) {
      Event event{.kind = kind};
      event.address = next();
      event.size = next();
      add(event);
    };
    using Kind = Event::Kind;
    switch (line[0]) {
      case 's': {
        const Offset address = next();
        trace.segments.push_back({address, next()});
        break;
      }
      case 'i': {
        Object object;
        object.id = next();
        object.size = next();
        object.stream = static_cast<StreamId>(next());
        object.address = next();
        if (object.id >= trace.objects) trace.objects = object.id + 1;
        trace.live.push_back(object);
        break;
      }
      case 'b':
        begun = true;
        break;
      case 'a': {
        Event event;
        event.object = next();
        event.size = next();
        event.stream = static_cast<StreamId>(next());
        std::uint64_t address;
        if (in >> address && address != 0) event.address = address;
        add(event);
        break;
      }
      case 'f':
        add({.kind = Kind::kFree, .object = next()});
        break;
      case 'S':
        range(Kind::kSegmentAllocate);
        break;
      case 'R':
        range(Kind::kSegmentFree);
        break;
      case 'M':
        range(Kind::kMap);
        break;
      case 'U':
        range(Kind::kUnmap);
        break;
      case 'O': {
        Event event{.kind = Kind::kOutOfMemory};
        event.device_free = next();
        event.size = next();
        add(event);
        break;
      }
      default:
        throw std::runtime_error(path + ":" + std::to_string(number) + ": no event begins with '" + line[0] +
                                 "'");
    }
    const bool before = line[0] == 's' || line[0] == 'i' || line[0] == 'b';
    if (before == begun && line[0] != 'b') {
      throw std::runtime_error(path + ":" + std::to_string(number) +
                               ": this event is on the wrong side of 'b'");
    }
  }
  return trace;
}

}  // namespace memoir::gpu_trace
