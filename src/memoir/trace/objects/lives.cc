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
  std::size_t count = 0;
  bool consecutive = true;  // the ids
  bool tells = false;
  for (const Event& event : events) {
    if (event.kind == EventKind::kAllocate) {
      if (count == 0) first_ = event.object;
      consecutive = consecutive && event.object - first_ == count;
      ++count;
    } else if (event.kind == EventKind::kAddress || event.kind == EventKind::kFreeRequested) {
      tells = true;
    }
  }
  begins_.reserve(count);
  ends_.reserve(count);
  if (!consecutive) numbers_.resize(events.size());
  if (tells) told_.resize(count);
  ObjectIndex index;
  const auto id_of = [&](std::uint32_t number) { return allocation(number).object; };
  const auto find = [&](ObjectId object) {
    if (!consecutive) return index.find(object, id_of);
    return object - first_ < begins_.size() ? static_cast<std::uint32_t>(object - first_)
                                            : ObjectIndex::kNone;
  };
  const auto refuse = [&](std::uint32_t event, const char* what) {
    throw Error(name_event(events, event) + " " + what);
  };
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == EventKind::kAllocate) {
      if (find(event.object) != ObjectIndex::kNone) {
        refuse(i, "is allocated twice; object ids are never reused");
      }
      const auto number = static_cast<std::uint32_t>(begins_.size());
      begins_.push_back(i);
      ends_.push_back(Life::kNever);
      if (consecutive) continue;
      numbers_[i] = number;
      index.add(event.object, number, id_of);
    } else if (event.kind == EventKind::kFree || event.kind == EventKind::kAddress ||
               event.kind == EventKind::kFreeRequested) {
      const bool frees = event.kind == EventKind::kFree;
      const bool asks = event.kind == EventKind::kFreeRequested;
      const std::uint32_t number = find(event.object);
      if (number == ObjectIndex::kNone) {
        refuse(i, frees  ? "is freed but was never allocated"
                  : asks ? "is released but was never allocated"
                         : "gets an address but was never allocated");
      }
      if (ends_[number] != Life::kNever) {
        refuse(i, frees  ? "is freed twice"
                  : asks ? "is released after its free"
                         : "gets an address after its free");
      }
      if (!consecutive) numbers_[i] = number;
      if (frees) {
        ends_[number] = i;
      } else if (asks) {
        told_[number].is_free_requested = true;
      } else {
        told_[number].address = event.size;
        told_[number].pool = pool_of(event);
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
