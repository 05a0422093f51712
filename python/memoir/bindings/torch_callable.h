// SPDX-License-Identifier: Apache-2.0
//
// The memory of one callable, as calls from Python go through it.
#pragma once

#include <nanobind/stl/string.h>

#include <atomic>
#include <charconv>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "memoir/remember/slab/slab_set.h"
#include "torch_call.h"

namespace memoir {

/// What one callable remembers, and the way that each of its calls takes. Each pass is owned by one object in
/// C++, with no Python between its start and the callable's, nor between the callable's end and its own:
/// whatever a signal handler raises, the pass ends.
class CallableMemory {
 public:
  CallableMemory(size_t max_plans, double patience, std::shared_ptr<SlabSet> slabs,
                 std::shared_ptr<Ledger> ledger, nb::object describe, nb::object say_nothing_repeats)
      : memory_(MemoryOptions{max_plans, static_cast<unsigned>(patience * 1000)}, std::move(slabs),
                std::move(ledger)),
        describe_(std::move(describe)),
        say_nothing_repeats_(std::move(say_nothing_repeats)) {
    torch_door::install();
  }

  /// Null, with a Python error set, when the callable raised.
  nb::object call(const Arguments& arguments) {
    // An outer pass covers this one: one plan for all of it is the better plan. A suspended one is another
    // greenlet's, and this one has none.
    if (torch_door::in_pass()) return arguments.run();
    if (memory_.ledger() != nullptr && !memory_.ledger()->looks_at_call()) {
      skipped_.fetch_add(1, std::memory_order_relaxed);
      return arguments.run();
    }
    CallTimes times(memory_.ledger());
    HeldState state;
    const auto where = whereabouts(__builtin_frame_address(0));
    if (!where || !arguments.shape(state->shape)) {
      memory_.plain();
      return times.time_pass([&] { return arguments.run(); });
    }
    Memory::Decision decision = memory_.decide(state->shape);
    if (decision.way == Memory::Way::kSlow) [[unlikely]]
      times.learn([&] { decision = memory_.decide_slowly(std::move(decision)); });
    if (decision.is_new && (!given_.empty() || decision.repeats_nothing)) [[unlikely]]
      times.say([&] { look_at_new(decision, arguments); });
    switch (decision.way) {
      case Memory::Way::kFollow:
        return follow(decision, state, times, *where, arguments);
      case Memory::Way::kRecord:
        return record(decision, state, times, *where, arguments);
      default:
        return run_plain(times, arguments);
    }
  }

  void give_plan(const RecordedPlan& plan, const std::string& words) {
    given_[without_dimensions(words)].push_back({dimensions_of(words), plan});
  }
  void forget() {
    const nb::gil_scoped_release release;
    memory_.forget();
  }
  nb::dict stats() const {
    const MemoryStats stats = memory_.stats();
    const std::uint64_t skipped = skipped_.load(std::memory_order_relaxed);
    const Ledger::Figures times =
        memory_.ledger() != nullptr ? memory_.ledger()->figures() : Ledger::Figures{};
    nb::dict all;
    all["calls"] = stats.calls + skipped;
    all["recorded_passes"] = stats.recorded_passes;
    all["plan_hits"] = stats.plan_hits;
    all["in_step_passes"] = stats.in_step_passes;
    all["derived_passes"] = stats.derived_passes;
    all["plain_passes"] = stats.plain_passes + skipped;
    all["learning_seconds"] = static_cast<double>(times.learning) / 1e9;
    all["looking_seconds"] = static_cast<double>(times.looks) / 1e9;
    all["pass_seconds"] = static_cast<double>(times.passes) / 1e9;
    all["planned"] = stats.planned;
    all["escaping"] = stats.escaping;
    all["fallen_back"] = stats.unmatched + stats.occupied;
    all["unmatched"] = stats.unmatched;
    all["occupied"] = stats.occupied;
    all["guests"] = stats.guests;
    all["plans"] = stats.plans;
    all["arena_size"] = stats.arena_size;
    all["peak_live_bytes"] = stats.peak_live_bytes;
    return all;
  }

 private:
  nb::object follow(const Memory::Decision& decision, HeldState& state, CallTimes& times,
                    const torch_door::Whereabouts& where, const Arguments& arguments) {
    Slab* slab = memory_.slabs().acquire_at_once(decision.layout);
    if (slab == nullptr) [[unlikely]]
      times.learn([&] { slab = memory_.slabs().acquire(decision.layout); });  // pages are touched here
    if (slab == nullptr) [[unlikely]]
      return follow_nothing(decision, state, times, where, arguments);
    Recorder* recorder = nullptr;
    try {
      if (decision.records) [[unlikely]]
        recorder = &state->recorder.emplace();
      torch_door::begin_planned(*slab, decision.scoped, decision.logged ? &state->log : nullptr, recorder,
                                where);
    } catch (...) {  // no memory to listen to operators with
      memory_.slabs().give_back(slab);
      state->recorder.reset();
      return follow_nothing(decision, state, times, where, arguments);
    }
    if (recorder != nullptr) [[unlikely]]
      recorder->pass_begin(1);
    nb::object result = times.time_pass([&] { return arguments.run(); });
    if (recorder != nullptr) [[unlikely]]
      recorder->pass_end(1);
    const torch_door::PassResult how = torch_door::end_planned();
    times.listened(how.operators, decision.records);
    FollowedPass& pass = state->pass;
    memory_.slabs().give_back(slab, &pass.kept);
    pass.counters = how.counters;
    pass.repeated = how.in_step && how.at_end;
    pass.finished = result.is_valid();
    if (memory_.followed(decision, pass)) [[unlikely]]
      times.learn([&] { memory_.learn(decision, state->shape, pass, state->log); });
    if (recorder != nullptr) [[unlikely]]
      times.learn([&] { memory_.recorded(decision, *recorder, pass.finished); });
    return result;
  }

  /// It was to follow, and there is no slab.
  nb::object follow_nothing(const Memory::Decision& decision, HeldState& state, CallTimes& times,
                            const torch_door::Whereabouts& where, const Arguments& arguments) {
    if (decision.records) return record(decision, state, times, where, arguments);
    memory_.plain();
    return run_plain(times, arguments);
  }

  nb::object run_plain(CallTimes& times, const Arguments& arguments) {
    if (memory_.slabs().has_idle(kEmptiedForPlain)) [[unlikely]]
      times.learn([&] { memory_.slabs().empty_idle(kEmptiedForPlain); });
    return times.time_pass([&] { return arguments.run(); });
  }

  nb::object record(const Memory::Decision& decision, HeldState& state, CallTimes& times,
                    const torch_door::Whereabouts& where, const Arguments& arguments) {
    Recorder& recorder = state->recorder.emplace();
    // A pass that peaks at its live bytes, and not next to memory that nobody uses.
    if (decision.large_apart) times.learn([&] { memory_.slabs().empty_idle(kEmptiedForRecording); });
    try {
      torch_door::begin_recording(recorder, decision.large_apart, where);
    } catch (...) {
      memory_.recorded(decision, recorder, true);  // as a recording that failed
      return times.time_pass([&] { return arguments.run(); });
    }
    recorder.pass_begin(1);
    nb::object result = times.time_pass([&] { return arguments.run(); });
    recorder.pass_end(1);
    times.listened(torch_door::end_recording(), true);
    times.learn([&] { memory_.recorded(decision, recorder, result.is_valid()); });
    return result;
  }

  void look_at_new(Memory::Decision& decision, const Arguments& arguments) noexcept {
    nb::tuple args;
    nb::dict kwargs;
    try {
      std::tie(args, kwargs) = arguments.in_python();
    } catch (...) {
      PyErr_Clear();
      return;
    }
    if (!given_.empty() && decision.plan != nullptr) {
      try {
        const auto found = given_.find(without_dimensions(nb::cast<std::string>(describe_(args, kwargs))));
        if (found != given_.end()) {
          memory_.give_plans(decision, found->second);
          given_.erase(found);
        }
      } catch (...) {  // it cannot be described, so it is not one of theirs
        PyErr_Clear();
      }
    }
    if (!decision.repeats_nothing) return;
    try {
      say_nothing_repeats_(args, kwargs);
    } catch (...) {  // a warning that was made an error: the call goes on
      PyErr_Clear();
    }
  }

  /// The words of a call less what is in brackets: `float32[1,3,128,130]` and `float32[1,3,64,64]` are one.
  static std::string without_dimensions(const std::string& words) {
    std::string rest;
    bool inside = false;
    for (const char letter : words) {
      if (letter == ']') inside = false;
      if (!inside) rest += letter;
      if (letter == '[') inside = true;
    }
    return rest;
  }
  /// The numbers in the brackets, as take_call_shape() has them.
  static std::vector<std::int64_t> dimensions_of(const std::string& words) {
    std::vector<std::int64_t> numbers;
    for (size_t at = words.find('['); at != std::string::npos; at = words.find('[', at)) {
      do {
        ++at;
        std::int64_t number = 0;
        const char* const end = words.data() + words.size();
        const auto read = std::from_chars(words.data() + at, end, number);
        if (read.ec != std::errc()) break;
        numbers.push_back(number);
        at = static_cast<size_t>(read.ptr - words.data());
      } while (at < words.size() && words[at] == ',');
    }
    return numbers;
  }

  // Idle slabs of so many bytes are emptied before a pass that takes its memory elsewhere. A recorded one is
  // rare; next to plain ones the limit is where malloc takes the page faults of each tensor, too.
  static constexpr Size kEmptiedForRecording = 2 * kMiB, kEmptiedForPlain = 32 * kMiB;

  Memory memory_;
  std::atomic<std::uint64_t> skipped_ = 0;  // calls that the ledger had run plain without a look
  nb::object describe_, say_nothing_repeats_;
  std::unordered_map<std::string, std::vector<Memory::GivenPlan>>
      given_;  // plans from files, until a call of their form comes
};

}  // namespace memoir
