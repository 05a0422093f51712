// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/event_builder.h"

#include <algorithm>

#include "memoir/base/error.h"
#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

bool EventBuilder::waits_for(const BlockDecoder::Item& item) noexcept {
  if (item.operation == Operation::kAllocate) {
    const LiveAddresses::Place* const place = live_.find(item.address);
    if (place == nullptr || place->state() == LiveAddresses::kHusk) return false;
    return item.family != Family::kTensor || data_.events[place->event()].family == Family::kTensor;
  }
  return item.operation == Operation::kFree && (item.flags & kUndone) == 0 &&
         live_.find(item.address) == nullptr;
}

void EventBuilder::take(const BlockDecoder::Item& item, std::uint32_t thread, Tick time, LaneState& lane,
                        bool is_forced) {
  if (time > time_) {
    if (!covered_.empty() || !early_.empty()) end_tick();
    time_ = time;
  }
  switch (item.operation) {
    case Operation::kAllocate:
      allocate(item, thread, lane, is_forced);
      break;
    case Operation::kFree:
      free(item, thread, is_forced);
      break;
    case Operation::kRecord:
      record(item);
      break;
    case Operation::kMap:
    case Operation::kUnmap:
      segment(item);
      break;
    default:  // a definition
      break;
  }
}

void EventBuilder::end_tick() {
  for (const auto& [address, events] : covered_) {
    const auto early = early_.find(address);
    for (const std::uint32_t event : events) {
      if (early != early_.end() && early->second > 0) {
        --early->second;
      } else {
        ++data_.losses.missed_frees;
      }
      add_free(event, data_.events[event].thread, kNoSite);
    }
  }
  covered_.clear();
  for (const auto& [address, frees] : early_) data_.losses.unknown_frees += frees;
  early_.clear();
}

void EventBuilder::name_objects(bool by_address) {
  const Naming naming = by_address ? Naming::kByAddress : Naming::kById;
  if (naming_ != Naming::kNone && naming_ != naming) {
    throw Error("the file names objects by their ids and by their addresses; only one of the two can be");
  }
  naming_ = naming;
}

void EventBuilder::allocate(const BlockDecoder::Item& item, std::uint32_t thread, LaneState& lane,
                            bool is_forced) {
  name_objects(true);
  const bool is_tensor = item.family == Family::kTensor;
  if (is_tensor && data_.stops_at_tensors) throw FoundTensor();
  std::uint32_t stack = item.stack;
  if (!is_tensor) {
    lane.served = item.address;
    lane.served_stack = item.stack;
    if (only_ == Only::kTensors) return;
  } else {
    if (only_ == Only::kMallocs) return;
    if (stack == 0 && lane.served == item.address) stack = lane.served_stack;
  }
  const SiteId site =
      data_.stacks.keeps_operators() ? data_.stacks.operators(stack) : data_.stacks.site(stack);
  if (LiveAddresses::Place* const place = live_.find(item.address)) {
    Event& before = data_.events[place->event()];
    const bool lives = place->state() != LiveAddresses::kHusk;
    if (lives && is_tensor && before.family != Family::kTensor) {  // it absorbs that malloc
      live_bytes_ += item.size - before.size;
      if (live_bytes_ > kMaxSize) throw Error("the live objects add up to more than 2^56 bytes");
      before.family = Family::kTensor;
      before.size = item.size;
      before.alignment_log2 = std::max(before.alignment_log2, item.alignment_log2);
      if (site != kNoSite) before.site = site;
      *place = {place->event(), LiveAddresses::kAbsorbed};
      return;
    }
    if (lives && is_forced) {
      covered_[item.address].push_back(place->event());
      live_.erase(place);
    } else if (lives) {
      ++data_.losses.missed_frees;
      end(place, thread, kNoSite);
    } else {
      live_.erase(place);
    }
  }
  live_bytes_ += item.size;
  if (live_bytes_ > kMaxSize) throw Error("the live objects add up to more than 2^56 bytes");
  if (data_.events.size() >= LiveAddresses::kMostEvents) {
    throw Error("a trace of 2^30 events by address or more is not read");
  }
  data_.add({.kind = EventKind::kAllocate,
             .alignment_log2 = item.alignment_log2,
             .thread = thread,
             .object = ++objects_,
             .site = site,
             .size = item.size,
             .time = time_,
             .family = item.family,
             .address = item.address});
  live_.insert({static_cast<std::uint32_t>(data_.events.size() - 1), LiveAddresses::kPlain});
  if (early_.empty()) return;
  if (const auto early = early_.find(item.address); early != early_.end()) {
    if (--early->second == 0) early_.erase(early);
    end(live_.find(item.address), thread, kNoSite);
  }
}

/// The free of what lives there, which is then no longer known.
void EventBuilder::end(LiveAddresses::Place* place, std::uint32_t thread, SiteId site) {
  const std::uint32_t event = place->event();
  const std::uint64_t address = data_.events[event].address;
  live_.erase(place);
  add_free(event, thread, site);
  if (covered_.empty()) return;
  if (const auto covered = covered_.find(address); covered != covered_.end()) {
    live_.insert({covered->second.back(), LiveAddresses::kPlain});
    covered->second.pop_back();
    if (covered->second.empty()) covered_.erase(covered);
  }
}

void EventBuilder::add_free(std::uint32_t allocation, std::uint32_t thread, SiteId site) {
  const Event& event = data_.events[allocation];
  live_bytes_ -= event.size;
  const ObjectId object = event.object;
  data_.add({.kind = EventKind::kFree, .thread = thread, .object = object, .site = site, .time = time_});
}

void EventBuilder::free(const BlockDecoder::Item& item, std::uint32_t thread, bool is_forced) {
  if ((item.flags & kUndone) != 0) return;
  const bool of_tensor = (item.flags & kOfTensor) != 0;
  if (only_ == Only::kMallocs && of_tensor) return;
  LiveAddresses::Place* const place = live_.find(item.address);
  if (place == nullptr) {
    // Where only tensors are wanted, most frees are of other objects.
    if (only_ == Only::kTensors && !of_tensor) return;
    if (is_forced) {
      ++early_[item.address];
    } else {
      ++data_.losses.unknown_frees;
    }
    return;
  }
  const SiteId site = data_.stacks.site(item.stack);
  if (place->state() == LiveAddresses::kHusk) {
    live_.erase(place);
  } else if (of_tensor && place->state() == LiveAddresses::kAbsorbed) {
    const LiveAddresses::Place husk(place->event(), LiveAddresses::kHusk);
    end(place, thread, site);
    if (live_.find(item.address) == nullptr) live_.insert(husk);
  } else {
    end(place, thread, site);
  }
}

void EventBuilder::record(const BlockDecoder::Item& item) {
  Event event = item.event;
  event.time = time_;
  if (event.kind == EventKind::kAllocate || event.kind == EventKind::kFree) {
    name_objects(false);
    if (event.kind == EventKind::kAllocate && data_.stops_at_tensors) throw FoundTensor();
    if (event.family != Family::kTensor) throw Error("an object by its id that is not a tensor");
    if (only_ == Only::kMallocs) throw Error("the file holds tensors only, no mallocs");
  }
  if (const std::string why = checker_.refusal(event, data_.events); !why.empty()) throw Error(why);
  if (has_text(event)) {
    if (const std::string why = data_.take_text(event, item.text); !why.empty()) throw Error(why);
  }
  data_.add(event);
}

void EventBuilder::segment(const BlockDecoder::Item& item) {
  const bool maps = item.operation == Operation::kMap;
  Size size = item.size;
  if (maps) {
    mapped_bytes_ += size;
    if (mapped_bytes_ > kMaxSize) throw Error("the mappings add up to more than 2^56 bytes");
  } else {
    if (size > mapped_bytes_) ++data_.losses.unknown_unmaps;
    size = std::min(size, mapped_bytes_);
    mapped_bytes_ -= size;
    if (size == 0) return;
  }
  data_.add({.kind = maps ? EventKind::kSegmentMap : EventKind::kSegmentUnmap,
             .object = item.address,
             .site = data_.stacks.site(item.stack),
             .size = size,
             .time = time_});
}

}  // namespace memoir
