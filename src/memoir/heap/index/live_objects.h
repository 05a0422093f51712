// SPDX-License-Identifier: Apache-2.0
//
// The sizes of live objects by their offsets, for heaps whose places do not tell what was asked; with a note
// for each, if the heap wants one. Not thread-safe.
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"
#include "memoir/heap/index/offset_table.h"

namespace memoir {

struct NoNote {};

template <class Note = NoNote>
class LiveObjects {
 public:
  struct Object {
    Size size = 0;  // bytes as asked; 0: no object
    [[no_unique_address]] Note note = {};
  };

  /// Room for one more. False when there is no metadata memory: nothing changed.
  bool reserve_one() noexcept {
    if (objects_.size() == objects_.capacity()) {
      const size_t wanted = objects_.size() < 256 ? 256 : objects_.size() * 2;
      if (!objects_.reserve(wanted) || !unused_.reserve(objects_.capacity())) return false;
    }
    return by_offset_.reserve_one();
  }
  /// An object at an offset that has none; the caller has reserved room.
  void insert(Offset offset, const Object& object) noexcept {
    auto index = static_cast<OffsetTable::Index>(objects_.size());
    if (unused_.empty()) {
      objects_.push_back(object);
    } else {
      index = unused_.back();
      unused_.pop_back();
      objects_[index] = object;
    }
    by_offset_.insert(offset, index + 1);
    live_ += object.size;
  }
  /// Forgets the object there.
  Object take(Offset offset) noexcept {
    const OffsetTable::Index index = by_offset_.take(offset);
    if (index == 0) return {};
    unused_.push_back(index - 1);
    live_ -= objects_[index - 1].size;
    return objects_[index - 1];
  }
  Size size_of(Offset offset) const noexcept {
    const OffsetTable::Index index = by_offset_.find(offset);
    return index == 0 ? 0 : objects_[index - 1].size;
  }
  Size live() const noexcept { return live_; }  // bytes
  size_t count() const noexcept { return by_offset_.size(); }

 private:
  OffsetTable by_offset_;
  MetadataArray<Object> objects_;
  MetadataArray<OffsetTable::Index> unused_;  // of objects_
  Size live_ = 0;
};

}  // namespace memoir
