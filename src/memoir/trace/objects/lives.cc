// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/objects/lives.h"

#include <string>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/base/keyed_hash.h"
#include "memoir/trace/objects/object_index.h"

namespace memoir {

Lives::Lives(std::span<const Event> events) : events_(events) {
  if (events.size() >= Life::kNever) throw Error("a trace of 2^32 events or more is not read");
  ObjectIndex index;
  const auto id_of = [&](std::uint32_t number) { return events_[lives_[number].begin].object; };
  numbers_.resize(events.size());
  const auto refuse = [&](std::uint32_t event, const char* what) {
    throw Error(name_event(events, event) + " " + what);
  };
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == EventKind::kAllocate) {
      if (index.find(event.object, id_of) != ObjectIndex::kNone)
        refuse(i, "is allocated twice; object ids are never reused");
      numbers_[i] = static_cast<std::uint32_t>(lives_.size());
      lives_.push_back({.begin = i});
      if (event.address != 0) lives_.back().address = event.address;
      index.add(event.object, numbers_[i], id_of);
    } else if (event.kind == EventKind::kFree || event.kind == EventKind::kAddress ||
               event.kind == EventKind::kFreeRequested) {
      const bool frees = event.kind == EventKind::kFree;
      const bool asks = event.kind == EventKind::kFreeRequested;
      const std::uint32_t number = index.find(event.object, id_of);
      if (number == ObjectIndex::kNone) {
        refuse(i, frees  ? "is freed but was never allocated"
                  : asks ? "is released but was never allocated"
                         : "gets an address but was never allocated");
      }
      Life& life = lives_[number];
      if (life.end != Life::kNever) {
        refuse(i, frees  ? "is freed twice"
                  : asks ? "is released after its free"
                         : "gets an address after its free");
      }
      numbers_[i] = number;
      if (frees) {
        life.end = i;
      } else if (asks) {
        life.is_free_requested = true;
      } else {
        life.address = event.size;
        life.pool = pool_of(event);
      }
    }
  }
}

std::vector<Pass> passes_of(std::span<const Event> events) {
  std::vector<Pass> passes;
  std::unordered_map<std::uint64_t, std::size_t, KeyedHash> latest;  // of that number
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == EventKind::kPassBegin) {
      latest[event.object] = passes.size();
      passes.push_back({.number = event.object, .thread = event.thread, .begin = i});
    } else if (event.kind == EventKind::kPassEnd) {
      const auto begun = latest.find(event.object);
      if (begun != latest.end()) passes[begun->second].end = i;
    }
  }
  return passes;
}

std::string name_event(std::span<const Event> events, std::size_t event) {
  return "event " + std::to_string(event) + ": object " + std::to_string(events[event].object);
}

}  // namespace memoir
