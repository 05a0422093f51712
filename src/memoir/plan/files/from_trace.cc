// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/files/from_trace.h"

#include <algorithm>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/trace/objects/lives.h"

namespace memoir {
namespace {

struct Window {
  std::optional<std::uint64_t> pass;
  std::uint32_t thread = 0;
  size_t begin = 0, end = 0;  // events [begin, end)
};

Window find_window(std::span<const Event> events, std::optional<std::uint64_t> wanted) {
  const std::vector<Pass> passes = passes_of(events);
  const Pass* found = nullptr;  // the last to end
  bool is_there = false;
  for (const Pass& pass : passes) {
    if (wanted && pass.number != *wanted) continue;
    is_there = true;
    if (pass.end != Pass::kNever && (found == nullptr || pass.end > found->end)) found = &pass;
  }
  if (found != nullptr) return {found->number, found->thread, size_t{found->begin} + 1, found->end};
  if (wanted) {
    throw Error("pass " + std::to_string(*wanted) +
                (is_there ? " did not end before the recording did" : " is not in the trace"));
  }
  if (is_there) {
    throw Error("the trace has no complete pass: the recording ended within pass " +
                std::to_string(passes.back().number) + "; record again and let at least one pass end");
  }
  return {std::nullopt, 0, 0, events.size()};
}

/// Whether a pass of a native recording is to be read without its mallocs: it has tensors.
bool has_tensors(std::span<const Event> events) {
  return std::any_of(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::kAllocate && event.family == Family::kTensor;
  });
}

}  // namespace

RecordedPass read_pass(std::span<const Event> events, std::optional<std::uint64_t> pass,
                       std::optional<std::uint16_t> device) {
  const Window window = find_window(events, pass);
  const Lives lives(events);
  const Tick end = window.end - window.begin;
  const bool tensors_only = window.pass && has_tensors(events.subspan(window.begin, end));
  RecordedPass recorded;
  recorded.pass = window.pass;
  recorded.thread = window.thread;
  for (std::size_t number = 0; number < lives.size(); ++number) {
    const Life life = lives[number];
    if (life.begin < window.begin || life.begin >= window.end) continue;
    const Event& event = events[life.begin];
    if (device && event.device != *device) {
      recorded.elsewhere.add(event.size);
      continue;
    }
    if (tensors_only && event.family != Family::kTensor) {
      recorded.mallocs.add(event.size);
      continue;
    }
    if (window.pass && event.thread != window.thread) {
      recorded.foreign.add(event.size);
      continue;
    }
    if (event.alignment_log2 > 62) {
      throw Error(name_event(events, life.begin) + " has the alignment 2^" +
                  std::to_string(event.alignment_log2) + ", more than any memory has");
    }
    const Lifetime lifetime{life.begin - window.begin, life.end < window.end ? life.end - window.begin : end};
    const Size alignment = Size{1} << event.alignment_log2;
    const auto position = static_cast<std::uint32_t>(recorded.sequence.size());
    recorded.objects.push_back(event.object);
    recorded.sequence.push_back(
        {event.site, event.size, alignment, lifetime, kNoOffset, event.stream, event.device});
    if (lifetime.end == end) {
      recorded.escaping.add(event.size);
    } else if (event.size == 0) {
      recorded.empty.add(event.size);
    } else {
      recorded.problem.push_back({lifetime, event.size, alignment});
      recorded.positions.push_back(position);
    }
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
