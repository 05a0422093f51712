// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/simulation.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "memoir/base/check.h"
#include "memoir/base/error.h"
#include "memoir/simulate/operation_clock.h"

namespace memoir {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = Workload::Kind;

/// Gathers samples over equal stretches of the steps.
class Timeline {
 public:
  Timeline(std::vector<Sample>& samples, size_t steps, std::uint32_t most) : samples_(samples) {
    if (most == 0) return;
    stretch_ = (steps + most - 1) / most;
    samples_.reserve(std::min<size_t>(steps, most));
  }

  void add(const Workload::Step& step, Size live, Size reserved) {
    if (stretch_ == 0) return;
    if (left_ == 0) {
      samples_.push_back({step.event, step.time, live, reserved, 0});
      left_ = stretch_;
    }
    --left_;
    Sample& sample = samples_.back();
    sample.live = std::max(sample.live, live);
    sample.reserved = std::max(sample.reserved, reserved);
    sample.gap = std::max(sample.gap, reserved - std::min(reserved, live));
  }

 private:
  std::vector<Sample>& samples_;
  size_t stretch_ = 0;
  size_t left_ = 0;
};

/// The pass that counts everything, after a recording if there is one. Leaves nothing live in the heap. Gives
/// the step at which it stopped.
size_t count(const Workload& workload, SimulatedHeap& simulated, RestoredRun* restored,
             const SimulationOptions& options, Simulation& result) {
  struct Place {
    Offset offset = kNoOffset;
    Size held = 0;  // bytes, rounding included
  };
  std::vector<Place> places(workload.objects().size());
  Timeline timeline(result.timeline, workload.steps().size(), options.samples);
  Size live = 0, held = 0;
  double fragmentation = 0;
  size_t at = 0;
  const auto heap_of = [&](std::uint32_t object) -> Heap& {
    return simulated.heap(workload.objects()[object].pool, workload.objects()[object].stream);
  };
  const auto live_from = [&](std::uint32_t object, Offset offset) {
    Place& place = places[object];
    place = {offset, heap_of(object).size_of(offset)};
    live += workload.objects()[object].size;
    held += place.held;
    result.peak_live = std::max(result.peak_live, live);
  };
  const auto look = [&](const Workload::Step& step) {  // after it; gives what is reserved
    const Size reserved = simulated.reserved();
    result.peak_committed = std::max(result.peak_committed, simulated.committed());
    if (reserved > result.peak_reserved || (reserved == result.peak_reserved && live > result.live_at_peak)) {
      result.peak_reserved = reserved;
      result.peak_reserved_event = step.event;
      result.live_at_peak = live;
      result.rounding_at_peak = held - live;
    }
    const Size gap = reserved - std::min(reserved, live);
    if (gap > result.largest_gap) {
      result.largest_gap = gap;
      result.largest_gap_event = step.event;
    }
    timeline.add(step, live, reserved);
    return reserved;
  };
  if (restored != nullptr) {
    for (; at < workload.start_steps(); ++at) {
      const std::uint32_t object = workload.steps()[at].object;
      live_from(object, restored->start_offset(object));
    }
    look(at == 0 ? Workload::Step{} : workload.steps()[at - 1]);
  }
  for (; at < workload.steps().size(); ++at) {
    const Workload::Step& step = workload.steps()[at];
    simulated.tick(step.time);
    if (restored != nullptr) restored->before(at);
    if (step.kind == Kind::kAllocate) {
      const Workload::Object& object = workload.objects()[step.object];
      const Offset offset = simulated.allocate(object);
      if (restored != nullptr) restored->placed(step, offset);
      if (offset == kNoOffset) {
        ++result.failed;
        if (!result.oom) {
          result.oom = {step.event,  object.id,
                        object.site, object.size,
                        live,        simulated.reserved_when_refused(),
                        held - live, simulated.why_refused()};
        }
        if (options.stop_at_oom) break;
        continue;
      }
      live_from(step.object, offset);
    } else {
      Place& place = places[step.object];
      if (place.offset == kNoOffset) continue;
      MEMOIR_CHECK(simulated.free(workload.objects()[step.object], place.offset),
                   "a heap frees what it handed out");
      live -= workload.objects()[step.object].size;
      held -= place.held;
      place.offset = kNoOffset;
    }
    ++result.operations;
    const Size reserved = look(step);
    if (reserved != 0) {
      const Size gap = reserved - std::min(reserved, live);
      fragmentation += static_cast<double>(gap) / static_cast<double>(reserved);
    }
  }
  if (result.peak_reserved != 0) {
    result.fragmentation_at_peak =
        1 - static_cast<double>(result.live_at_peak) / static_cast<double>(result.peak_reserved);
  }
  if (result.operations != 0)
    result.fragmentation_mean = fragmentation / static_cast<double>(result.operations);
  result.completed = result.failed == 0;
  result.calls = simulated.calls();
  if (restored != nullptr) result.fidelity = restored->fidelity();
  result.private_reserved = simulated.private_reserved();
  for (std::uint32_t object = 0; object < places.size(); ++object) {
    if (places[object].offset != kNoOffset) heap_of(object).free(places[object].offset);
  }
  return at;
}

/// Passes over the first `end` steps that only measure: stretches in small groups and operation by operation
/// in turn. What a stretch needs is brought near first, as it would be to the program that asks.
OperationTimes measure(const Workload& workload, SimulatedHeap& simulated, size_t end) {
  constexpr size_t kStretch = 128;  // operations
  constexpr size_t kGroup = 16;
  constexpr std::uint64_t kEnough = 200'000;               // operations
  constexpr auto kBudget = std::chrono::milliseconds(20);  // for more passes than three
  struct Operation {
    Request request;
    Heap* heap;
    Offset* offset;
    bool allocates;
  };
  std::vector<Offset> offsets(workload.objects().size(), kNoOffset);
  std::vector<Operation> stretch;
  stretch.reserve(kStretch);
  OperationTimer timer;
  const auto run = [&](const Operation& operation) {
    if (operation.heap == nullptr) return;
    if (operation.allocates) {
      *operation.offset = operation.heap->allocate(operation.request);
    } else if (*operation.offset != kNoOffset) {
      operation.heap->free(*operation.offset);
      *operation.offset = kNoOffset;
    }
  };
  bool whole = true;
  const auto flush = [&] {
    if (stretch.empty()) return;
    if (whole) {
      for (size_t at = 0; at < stretch.size(); at += kGroup) {
        const size_t group_end = std::min(stretch.size(), at + kGroup);
        timer.begin();
        for (size_t i = at; i < group_end; ++i) run(stretch[i]);
        timer.end_of_group(group_end - at);
      }
    } else {
      for (const Operation& operation : stretch) {
        timer.begin();
        run(operation);
        timer.end_of_one();
      }
    }
    whole = !whole;
    stretch.clear();
  };
  const auto began = Clock::now();
  int passes = 0;
  do {
    for (size_t at = 0; at < end; ++at) {
      const Workload::Step& step = workload.steps()[at];
      Offset* const offset = &offsets[step.object];
      __builtin_prefetch(offset, 1);
      const Workload::Object& object = workload.objects()[step.object];
      stretch.push_back({simulated.request_of(object), simulated.find(object.pool, object.stream), offset,
                         step.kind == Kind::kAllocate});
      if (stretch.size() == kStretch) flush();
    }
    flush();
    timer.end_of_pass();
    for (size_t i = 0; i < offsets.size(); ++i) {
      const Workload::Object& object = workload.objects()[i];
      if (offsets[i] != kNoOffset) simulated.heap(object.pool, object.stream).free(offsets[i]);
      offsets[i] = kNoOffset;
    }
    ++passes;
  } while (end > 0 && timer.operations() < kEnough && (passes < 3 || Clock::now() - began < kBudget));
  return {timer.mean(), timer.median(), timer.quantile(0.999), timer.operations()};
}

void check_cap(const Workload& workload, Size cap) {
  if (cap >= workload.largest()) return;
  throw Error("a cap of " + std::to_string(cap) + " bytes is under the largest request, " +
              std::to_string(workload.largest()) +
              " bytes: nothing can complete under it; the smallest that can is " +
              "the peak of live bytes, " + std::to_string(workload.peak_live()));
}

}  // namespace

Simulation simulate(const Workload& workload, std::string_view policy, const SimulationOptions& options) {
  const auto began = Clock::now();
  check_cap(workload, options.cap);
  Simulation result;
  result.policy = policy;
  result.cap = options.cap;
  std::optional<RestoredState> start;
  if (!options.recorded.empty()) start = restored_state(workload, options.recorded);
  std::unique_ptr<SimulatedHeap> simulated =
      make_policy(policy, workload, options.cap, options.with_phases, start ? &*start : nullptr);
  std::optional<RestoredRun> restored;
  if (simulated->restored() != nullptr) restored.emplace(workload, *simulated, *start, policy, options.cap);
  const size_t end = count(workload, *simulated, restored ? &*restored : nullptr, options, result);
  if (const PhaseTable* table = simulated->phases())
    result.phases.assign(table->phases().begin(), table->phases().end());
  if (options.timed) {
    if (options.with_phases) {  // reading its clocks takes a heap longer than most of what it does
      simulated = make_policy(policy, workload, options.cap);
      measure(workload, *simulated, end);
    }
    result.times = measure(workload, *simulated, end);
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return result;
}

CapSearch find_cap(const Workload& workload, std::string_view policy, Size resolution,
                   const std::string& recorded) {
  CapSearch search;
  Size peak = workload.peak_live();
  search.resolution = resolution != 0 ? resolution : std::max<Size>(512, std::bit_floor(peak / 2048));
  if (peak == 0) return search;
  if (!recorded.empty()) {
    const RestoredState start = restored_state(workload, recorded);
    if (can_start_from(policy, start)) peak = std::max(peak, start.held);
  }
  const auto completes = [&](Size cap) {
    const bool completed =
        simulate(workload, policy, {.cap = cap, .samples = 0, .timed = false, .recorded = recorded})
            .completed;
    search.trials.push_back({cap, completed});
    return completed;
  };
  if (completes(peak)) {
    search.cap = peak;
    return search;
  }
  const Simulation free = simulate(workload, policy, {.samples = 0, .timed = false, .recorded = recorded});
  if (!free.completed) return search;
  Size best = std::max(free.peak_reserved, peak + 1);
  for (int doublings = 0; !completes(best); ++doublings) {
    if (doublings == 3) return search;
    best *= 2;
  }
  const auto bisect = [&](Size fails) {  // below `best`
    while (best - fails > search.resolution) {
      const Size middle = fails + (best - fails) / 2;
      (completes(middle) ? best : fails) = middle;
    }
  };
  bisect(peak);
  for (bool found = true; found;) {
    found = false;
    Size fails = peak;
    for (Size distance = 2 * search.resolution, i = 0; i < 8 && best > peak + distance && !found;
         ++i, distance *= 2) {
      const Size cap = best - distance;
      found = completes(cap);
      if (found) best = cap;
    }
    if (found) bisect(fails);
  }
  search.cap = best;
  return search;
}

}  // namespace memoir
