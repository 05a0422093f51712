// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/objects/event_checker.h"

#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

namespace {

std::string name(const Event& event) { return "object " + std::to_string(event.object); }
std::string pass_name(const Event& event) { return "pass " + std::to_string(event.object); }

std::string segment_name(const Event& event) {
  return "the segment of " + std::to_string(event.size) + " bytes at " + std::to_string(event.object) +
         " on device " + std::to_string(event.device);
}

}  // namespace

std::string EventChecker::refusal(const Event& event, const MetadataArray<Event>& before) {
  if (event.time > kMaxTime || event.time < last_time_) {
    return "its time, " + std::to_string(event.time) + " ns, is before the record before it (" +
           std::to_string(last_time_) + " ns) or beyond 2^62";
  }
  last_time_ = event.time;
  if (names_pool(event.kind) && pool_of(event) > pools_.size()) {
    return "it is of pool " + std::to_string(pool_of(event)) + ", which no record before it defines";
  }
  switch (event.kind) {
    case EventKind::kAllocate:
      return allocate(event, before);
    case EventKind::kFree:
    case EventKind::kFreeRequested:
    case EventKind::kAddress:
      return of_object(event, before);
    case EventKind::kSegmentAllocate:
    case EventKind::kSegmentFree:
    case EventKind::kSegmentMap:
    case EventKind::kSegmentUnmap:
      return segment(event);
    case EventKind::kOutOfMemory:
      return out_of_memory(event);
    case EventKind::kPassBegin:
      if (!passes_.emplace(event.object, true).second) return pass_name(event) + " begins a second time";
      break;
    case EventKind::kPassEnd: {
      const auto pass = passes_.find(event.object);
      if (pass == passes_.end() || !pass->second) return pass_name(event) + " ends but is not running";
      pass->second = false;
      break;
    }
    case EventKind::kPool:
      if (std::string why = pool(event); !why.empty()) return why;
      break;
    case EventKind::kSite:
    case EventKind::kMeta:
      break;
    default:
      return "unknown kind " + std::to_string(static_cast<unsigned>(event.kind)) +
             ", of 1 to 14: the file is damaged, or of a newer memoir";
  }
  if (event.device != 0 || event.stream != 0) {
    return "it names device " + std::to_string(event.device) + " and stream " + std::to_string(event.stream) +
           ", though its kind has none";
  }
  return {};
}

std::string EventChecker::allocate(const Event& event, const MetadataArray<Event>& before) {
  if (event.size > kMaxSize) return name(event) + " has " + std::to_string(event.size) + " bytes, over 2^56";
  if (event.alignment_log2 > kMaxSizeLog2) {
    return name(event) + " is aligned to 2^" + std::to_string(event.alignment_log2) + " bytes, over 2^56";
  }
  if (event.address > kMaxAddress - event.size) return name(event) + " ends beyond 2^63";
  const auto id_of = [&](std::uint32_t number) { return before[number].object; };
  if (objects_.find(event.object, id_of).life != ObjectStates::Life::kUnknown) {
    return name(event) + " is allocated a second time";
  }
  if (before.size() >= ObjectStates::kMostNumbers) return "a trace of 2^30 events or more is not read";
  live_ += event.size;
  if (live_ > kMaxSize) return "the live objects add up to more than 2^56 bytes";
  objects_.add(event.object, static_cast<std::uint32_t>(before.size()), id_of);
  return {};
}

/// What is said of one object that lives: its address, that it was let go of, that it is free.
std::string EventChecker::of_object(const Event& event, const MetadataArray<Event>& before) {
  const bool is_address = event.kind == EventKind::kAddress;
  const char* const does = is_address ? " gets an address" : " is freed";
  const auto id_of = [&](std::uint32_t number) { return before[number].object; };
  const ObjectStates::State known = objects_.find(event.object, id_of);
  if (known.life == ObjectStates::Life::kUnknown) return name(event) + does + " but was never allocated";
  if (known.life == ObjectStates::Life::kGone) {
    return name(event) + (is_address ? " gets an address after its free" : " is freed a second time");
  }
  const Event& allocation = before[known.number];
  if (event.device != allocation.device) {
    return name(event) + does + " on device " + std::to_string(event.device) + " but lives on device " +
           std::to_string(allocation.device);
  }
  if (event.kind == EventKind::kFree) {
    objects_.end(event.object, id_of);
    live_ -= allocation.size;
    return {};
  }
  const Mark which = is_address ? kHasAddress : kRequested;
  if ((known.marks & which) != 0) {
    return name(event) + (is_address ? " gets an address a second time" : " is released a second time");
  }
  if (is_address && event.size > kMaxAddress - allocation.size) {
    return name(event) + " lies at address " + std::to_string(event.size) + ", so that it ends beyond 2^63";
  }
  objects_.mark(event.object, which, id_of);
  return {};
}

std::string EventChecker::segment(const Event& event) {
  if (event.size == 0 || event.size > kMaxSize || event.object > kMaxAddress - event.size) {
    return segment_name(event) + " is empty, over 2^56 bytes, or ends beyond 2^63";
  }
  Device& device = devices_[event.device];
  switch (event.kind) {
    case EventKind::kSegmentAllocate:
      if (!device.segments.emplace(event.object, event.size).second) {
        return segment_name(event) + " is allocated where a live one begins";
      }
      device.reserved += event.size;
      break;
    case EventKind::kSegmentFree: {
      const auto found = device.segments.find(event.object);
      if (found == device.segments.end() || found->second != event.size) {
        return segment_name(event) + " is freed but is not live";
      }
      device.reserved -= event.size;
      device.segments.erase(found);
      break;
    }
    case EventKind::kSegmentMap:
      device.mapped += event.size;
      break;
    default:
      if (event.size > device.mapped) {
        return segment_name(event) + " is unmapped, though only " + std::to_string(device.mapped) +
               " bytes are mapped there";
      }
      device.mapped -= event.size;
  }
  if (device.reserved + device.mapped > kMaxSize) {
    return "the segments on device " + std::to_string(event.device) + " add up to more than 2^56 bytes";
  }
  return {};
}

std::string EventChecker::out_of_memory(const Event& event) {
  if (event.size > kMaxAddress) return "it asks for " + std::to_string(event.size) + " bytes, over 2^63";
  if (event.object > kMaxSize) {
    return std::to_string(event.object) + " bytes are free on device " + std::to_string(event.device) +
           ", over 2^56";
  }
  return {};
}

std::string EventChecker::pool(const Event& event) {
  if (pool_of(event) != pools_.size() + 1) {
    return "it defines pool " + std::to_string(pool_of(event)) + ", though the next is pool " +
           std::to_string(pools_.size() + 1);
  }
  if ((event.object == 0 && event.size == 0) || !pools_.emplace(event.object, event.size).second) {
    return "pool " + std::to_string(pool_of(event)) + " is (" + std::to_string(event.object) + ", " +
           std::to_string(event.size) + "), as another one is";
  }
  return {};
}

}  // namespace memoir
