// SPDX-License-Identifier: Apache-2.0
//
// Events of a made-up trace, one each nanosecond.
#pragma once

#include <vector>

#include "memoir/trace/event.h"

namespace memoir::run {

class Events {
 public:
  Events& allocate(ObjectId object, Size size, SiteId site = kNoSite) {
    Event event;
    event.kind = EventKind::kAllocate;
    event.object = object;
    event.size = size;
    event.site = site;
    return add(event);
  }
  Events& free(ObjectId object) {
    Event event;
    event.kind = EventKind::kFree;
    event.object = object;
    return add(event);
  }
  Events& pass(EventKind kind, ObjectId number) {
    Event event;
    event.kind = kind;
    event.object = number;
    return add(event);
  }
  Events& add(Event event) {
    event.time = events_.size();
    events_.push_back(event);
    return *this;
  }
  const std::vector<Event>& all() const { return events_; }

 private:
  std::vector<Event> events_;
};

}  // namespace memoir::run
