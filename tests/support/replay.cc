// SPDX-License-Identifier: Apache-2.0
#include "support/replay.h"

#include <algorithm>
#include <vector>

#include "memoir/base/check.h"
#include "memoir/trace/objects/object_table.h"

namespace memoir {

ReplayUsage replay(std::span<const Event> events, Heap& heap, const Arena& arena) {
  struct Object {
    Size size;
    Offset offset;  // kNoOffset: the heap did not take it
    bool live;
  };
  ReplayUsage usage;
  ObjectTable table;            // object -> index into `objects`
  std::vector<Object> objects;  // in order of allocation
  Size load = 0;
  for (const Event& event : events) {
    if (event.kind == EventKind::kAllocate) {
      ++usage.allocations;
      ObjectTable::Entry& entry = table.find(event.object);
      MEMOIR_CHECK(entry.state == ObjectTable::State::kUnknown, "an object is allocated once");
      entry = {event.object, ObjectTable::State::kLive, 0, objects.size()};
      table.added();
      load += event.size;
      usage.peak_load = std::max(usage.peak_load, load);
      Offset offset = kNoOffset;
      if (event.size != 0) {
        offset = heap.allocate({event.size, Size{1} << event.alignment_log2, event.site, event.stream});
        if (offset == kNoOffset) {
          ++usage.elsewhere;
          usage.elsewhere_bytes += event.size;
        } else {
          ++usage.served;
          usage.peak_live = std::max(usage.peak_live, heap.live());
          usage.peak_end = std::max(usage.peak_end, offset + event.size);
        }
      }
      objects.push_back({event.size, offset, true});
    } else if (event.kind == EventKind::kFree) {
      ++usage.frees;
      const ObjectTable::Entry& entry = table.find(event.object);
      MEMOIR_CHECK(entry.state == ObjectTable::State::kLive && objects[entry.value].live,
                   "an object is freed once, after its allocation");
      Object& object = objects[entry.value];
      object.live = false;
      load -= object.size;
      if (object.offset != kNoOffset) {
        MEMOIR_CHECK(heap.free(object.offset), "a heap frees what it handed out");
      }
    } else {
      continue;
    }
    usage.peak_committed = std::max(usage.peak_committed, arena.committed());
  }
  for (const Object& object : objects) {
    if (object.live && object.offset != kNoOffset) heap.free(object.offset);
  }
  return usage;
}

}  // namespace memoir
