// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/plain/direct_heap.h"

namespace memoir {

DirectHeap::~DirectHeap() {
  for (const Range& object : objects_) {
    if (object.size != 0) segments_->give_back(object);
  }
}

Offset DirectHeap::allocate(const Request& request) noexcept {
  if (request.size == 0 || !is_power_of_two(request.alignment) || request.alignment > kAlignment)
    return kNoOffset;
  if (!by_offset_.reserve_one() || !objects_.reserve(objects_.size() + 1)) return kNoOffset;
  if (!unused_.reserve(objects_.size() + 1)) return kNoOffset;  // so that a free needs nothing
  const Offset offset = segments_->take(request.size);
  if (offset == kNoOffset) return kNoOffset;
  std::uint32_t position = static_cast<std::uint32_t>(objects_.size());
  if (unused_.empty()) {
    objects_.push_back({});
  } else {
    position = unused_.back();
    unused_.pop_back();
  }
  objects_[position] = {offset, request.size};
  by_offset_.insert(offset, position + 1);
  live_ += request.size;
  return offset;
}

bool DirectHeap::free(Offset offset) noexcept {
  const OffsetTable::Index index = by_offset_.take(offset);
  if (index == 0) return false;
  Range& object = objects_[index - 1];
  segments_->give_back(object);
  live_ -= object.size;
  object = {};
  unused_.push_back(index - 1);
  return true;
}

Size DirectHeap::size_of(Offset offset) const noexcept {
  const OffsetTable::Index index = by_offset_.find(offset);
  return index == 0 ? 0 : objects_[index - 1].size;
}

}  // namespace memoir
