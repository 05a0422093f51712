// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/from_trace.h"

#include <unordered_map>

#include "memoir/base/check.h"
#include "memoir/base/error.h"

namespace memoir {
namespace {

constexpr size_t kNever = ~size_t{0};

struct Window {
  std::optional<std::uint64_t> pass;
  std::uint32_t thread = 0;
  size_t begin = 0, end = 0;  // events [begin, end)
};

Window find_window(std::span<const Event> events, std::optional<std::uint64_t> wanted) {
  struct Begun {
    size_t event;
    std::uint32_t thread;
  };
  std::unordered_map<std::uint64_t, Begun> begun;
  std::optional<Window> found;
  std::uint64_t last = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == EventKind::kPassBegin) {
      begun[event.object] = {i, event.thread};
      last = event.object;
    } else if (event.kind == EventKind::kPassEnd && (!wanted || *wanted == event.object)) {
      const auto begin = begun.find(event.object);
      if (begin != begun.end())
        found = Window{event.object, begin->second.thread, begin->second.event + 1, i};
    }
  }
  if (found) return *found;
  if (wanted) {
    throw Error("pass " + std::to_string(*wanted) +
                (begun.contains(*wanted) ? " did not end before the recording did" : " is not in the trace"));
  }
  if (!begun.empty()) {
    throw Error("the trace has no complete pass: the recording ended within pass " + std::to_string(last) +
                "; record again and let at least one pass end");
  }
  return {std::nullopt, 0, 0, events.size()};
}

/// Where an object's allocation lies in the sequence (kNever: outside the window, or foreign) and whether it
/// is live.
struct Object {
  size_t position = kNever;
  bool live = true;
};

/// Text records, which the span leaves out, count: the number is the record's place in the file.
std::string name_record(std::span<const Event> events, size_t index, std::uint64_t object) {
  size_t record = index;
  for (const Event& event : events.first(index)) record += text_records(event);
  return "record " + std::to_string(record) + ": object " + std::to_string(object);
}

}  // namespace

RecordedPass read_pass(std::span<const Event> events, std::optional<std::uint64_t> pass,
                       std::optional<std::uint16_t> device) {
  const Window window = find_window(events, pass);
  RecordedPass recorded;
  recorded.pass = window.pass;
  recorded.thread = window.thread;

  std::unordered_map<ObjectId, Object> objects;
  objects.reserve(window.end / 2);
  for (size_t i = 0; i < window.end; ++i) {
    const Event& event = events[i];
    if (event.kind == EventKind::kAllocate) {
      Object object;
      if (i >= window.begin) {
        if (device && event.device != *device) {
          recorded.elsewhere.add(event.size);
        } else if (window.pass && event.thread != window.thread) {
          recorded.foreign.add(event.size);
        } else {
          if (event.alignment_log2 > 62) {
            throw Error(name_record(events, i, event.object) + " has the alignment 2^" +
                        std::to_string(event.alignment_log2) + ", more than any memory has");
          }
          object.position = recorded.sequence.size();
          recorded.objects.push_back(event.object);
          recorded.sequence.push_back({event.site, event.size, Size{1} << event.alignment_log2,
                                       Lifetime{i - window.begin, window.end - window.begin}, kNoOffset,
                                       event.stream, event.device});
        }
      }
      if (!objects.emplace(event.object, object).second) {
        throw Error(name_record(events, i, event.object) +
                    " is allocated twice; object ids are never reused");
      }
    } else if (event.kind == EventKind::kFree) {
      const auto object = objects.find(event.object);
      if (object == objects.end() || !object->second.live) {
        throw Error(name_record(events, i, event.object) +
                    (object == objects.end() ? " is freed but was never allocated" : " is freed twice"));
      }
      object->second.live = false;
      if (object->second.position != kNever) {
        recorded.sequence[object->second.position].lifetime.end = i - window.begin;
      }
    }
  }

  const Tick end = window.end - window.begin;
  for (size_t position = 0; position < recorded.sequence.size(); ++position) {
    const PlannedAllocation& allocation = recorded.sequence[position];
    Tally* tally = nullptr;
    if (allocation.size == 0) tally = &recorded.empty;
    if (allocation.lifetime.end == end) tally = &recorded.escaping;
    if (tally != nullptr) {
      tally->add(allocation.size);
      continue;
    }
    recorded.problem.push_back({allocation.lifetime, allocation.size, allocation.alignment});
    recorded.positions.push_back(static_cast<std::uint32_t>(position));
  }
  return recorded;
}

RecordedPlan record_plan(const RecordedPass& recorded, const Plan& plan, std::string_view planner) {
  MEMOIR_CHECK(plan.offsets.size() == recorded.problem.size(), "the plan is the plan of the pass's problem");
  RecordedPlan result{recorded.sequence, plan.arena_size, load(recorded.problem), std::string(planner),
                      recorded.meta};
  for (size_t i = 0; i < recorded.positions.size(); ++i) {
    result.sequence[recorded.positions[i]].offset = plan.offsets[i];
  }
  return result;
}

}  // namespace memoir
