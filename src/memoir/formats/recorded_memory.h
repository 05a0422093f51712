// SPDX-License-Identifier: Apache-2.0
//
// What a recording says that its allocator held, and where the objects lay: an account that finds
// contradictions.
//
//   segment  0 ............ 20 MiB          another one at 10 MiB: refused, since nobody has a byte twice
//   object   [ 1 MiB, 3 MiB )               another one at 2 MiB, or one at 30 MiB: refused
//
// Objects have to lie in what is held from the moment on that the recording tells of segments. Some 100 bytes
// of memory for each segment and each object that lives at once. Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "memoir/base/units.h"
#include "memoir/trace/event.h"

namespace memoir {

class RecordedMemory {
 public:
  /// Each gives why it cannot have been, in words that follow "file:line: ", or "". Ranges end at 2^63 at
  /// most; those of no bytes change nothing.

  /// `kind` is one of kSegment*.
  std::string segment(EventKind kind, Range range);
  std::string place(ObjectId object, Range range);
  /// The object ends; nothing happens where it was not placed.
  void remove(ObjectId object, Offset address) {
    const auto found = objects_.find(address);
    if (found != objects_.end() && found->second.object == object) objects_.erase(found);
  }

 private:
  struct Held {
    Offset end = 0;
    bool is_mapped = false;  // else a segment of its own
  };
  struct Placed {
    Offset end = 0;
    ObjectId object = 0;
  };

  std::string give(Range range, bool is_mapped);
  std::string give_back(Range range);
  std::string unmap(Range range);
  std::string object_in(Range range) const;

  std::map<Offset, Held> held_;  // by address; none overlap, and no two that are mapped touch
  std::map<Offset, Placed> objects_;
  bool knows_segments_ = false;
};

}  // namespace memoir
