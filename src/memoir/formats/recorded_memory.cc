// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/recorded_memory.h"

#include <iterator>

#include "memoir/base/hex.h"

namespace memoir {

namespace {

std::string bytes_at(Range range) { return std::to_string(range.size) + " bytes at " + hex(range.begin); }
std::string object_of(ObjectId object, Range range) {
  return "object " + std::to_string(object) + " of " + bytes_at(range);
}

/// The first of ranges by address, none of which overlap, that reaches beyond `address`.
template <class Ranges>
auto first_beyond(Ranges& ranges, Offset address) {
  auto at = ranges.upper_bound(address);
  if (at != ranges.begin() && std::prev(at)->second.end > address) --at;
  return at;
}

}  // namespace

std::string RecordedMemory::segment(EventKind kind, Range range) {
  if (range.size == 0) return {};
  knows_segments_ = true;
  if (kind == EventKind::kSegmentAllocate || kind == EventKind::kSegmentMap)
    return give(range, kind == EventKind::kSegmentMap);
  return kind == EventKind::kSegmentFree ? give_back(range) : unmap(range);
}

std::string RecordedMemory::give(Range range, bool is_mapped) {
  auto after = first_beyond(held_, range.begin);
  if (after != held_.end() && after->first < range.end()) {
    return "the segment of " + bytes_at(range) + " overlaps the one of " +
           bytes_at({after->first, after->second.end - after->first}) + ", which is held then";
  }
  Held held{range.end(), is_mapped};
  Offset begin = range.begin;
  if (is_mapped && after != held_.end() && after->second.is_mapped && after->first == held.end) {
    held.end = after->second.end;
    after = held_.erase(after);
  }
  if (is_mapped && after != held_.begin()) {
    const auto before = std::prev(after);
    if (before->second.is_mapped && before->second.end == begin) {
      before->second.end = held.end;
      return {};
    }
  }
  held_.emplace_hint(after, begin, held);
  return {};
}

std::string RecordedMemory::give_back(Range range) {
  const auto found = held_.find(range.begin);
  if (found == held_.end() || found->second.is_mapped || found->second.end != range.end())
    return "the segment of " + bytes_at(range) + " goes back but is not held";
  if (std::string inside = object_in(range); !inside.empty())
    return "the segment of " + bytes_at(range) + " goes back while " + inside + " lives in it";
  held_.erase(found);
  return {};
}

std::string RecordedMemory::unmap(Range range) {
  const auto found = first_beyond(held_, range.begin);
  if (found == held_.end() || !found->second.is_mapped || found->first > range.begin ||
      found->second.end < range.end()) {
    return "memory of " + bytes_at(range) + " is unmapped, but not all of it is mapped";
  }
  if (std::string inside = object_in(range); !inside.empty())
    return "memory of " + bytes_at(range) + " is taken away while " + inside + " lives in it";
  const Offset end = found->second.end;
  if (found->first == range.begin) held_.erase(found);
  else found->second.end = range.begin;
  if (range.end() < end) held_.emplace(range.end(), Held{end, true});
  return {};
}

std::string RecordedMemory::place(ObjectId object, Range range) {
  if (range.size == 0) return {};
  if (std::string other = object_in(range); !other.empty())
    return object_of(object, range) + " overlaps " + other + ", which lives then";
  if (knows_segments_) {
    const auto found = first_beyond(held_, range.begin);
    if (found == held_.end() || found->first > range.begin || found->second.end < range.end())
      return object_of(object, range) + " lies in no segment that is held then";
  }
  objects_.emplace(range.begin, Placed{range.end(), object});
  return {};
}

/// The first object that lies in the range, or "".
std::string RecordedMemory::object_in(Range range) const {
  const auto found = first_beyond(objects_, range.begin);
  if (found == objects_.end() || found->first >= range.end()) return {};
  return object_of(found->second.object, {found->first, found->second.end - found->first});
}

}  // namespace memoir
