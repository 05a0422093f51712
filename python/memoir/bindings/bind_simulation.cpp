// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bind.h"
#include "columns.h"
#include "memoir/base/error.h"
#include "memoir/simulate/simulation.h"
#include "memoir/trace/read/trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {
namespace {

using Run = nb::call_guard<nb::gil_scoped_release>;

nb::dict timeline(const Simulation& self) {
  nb::dict columns;
  columns["event"] = column(self.timeline, [](const Sample& s) { return std::uint64_t{s.event}; });
  columns["time"] = column(self.timeline, [](const Sample& s) { return s.time; });
  columns["live"] = column(self.timeline, [](const Sample& s) { return s.live; });
  columns["reserved"] = column(self.timeline, [](const Sample& s) { return s.reserved; });
  columns["gap"] = column(self.timeline, [](const Sample& s) { return s.gap; });
  return columns;
}

nb::list phases(const Simulation& self) {
  nb::list rows;
  for (const Phase& phase : self.phases) {
    nb::dict row;
    row["phase"] = phase.name;
    row["calls"] = phase.calls;
    row["total_ns"] = phase.total;
    row["worst_ns"] = phase.worst;
    rows.append(row);
  }
  return rows;
}

nb::list failures(const Workload& self) {
  nb::list rows;
  for (const Workload::Failure& failure : self.failures()) {
    nb::dict row;
    row["event"] = failure.event;
    row["asked"] = failure.asked;
    row["live"] = failure.live;
    row["reserved"] = failure.reserved;
    row["device_free"] = failure.device_free;
    row["cap"] = failure.cap();
    row["site"] = failure.site;
    row["stream"] = failure.stream;
    row["pool"] = failure.pool;
    row["asked_again"] = failure.object != Workload::kNotAsked;
    rows.append(row);
  }
  return rows;
}

std::optional<Size> cap_of(const Simulation& self) {
  return self.cap == kNoCap ? std::nullopt : std::optional(self.cap);
}

Substrate substrate_named(const std::string& name) {
  for (const Substrate substrate : {Substrate::kSimulation, Substrate::kHost, Substrate::kDevice}) {
    if (substrate_name(substrate) == name) return substrate;
  }
  throw Error("'" + name + "' is not one of simulation, host, device");
}

void bind_results(nb::module_& module) {
  module.def(
      "passes_of",
      [](const Trace& trace) {
        const std::span<const Event> events = trace.events();
        return std::count_if(events.begin(), events.end(),
                             [](const Event& event) { return event.kind == EventKind::kPassBegin; });
      },
      "trace"_a, Run(), "How many passes the trace says that began.");

  nb::class_<DeviceCalls>(module, "DeviceCalls", "Calls to the device that a simulation made.")
      .def_ro("takes", &DeviceCalls::takes)
      .def_ro("give_backs", &DeviceCalls::give_backs)
      .def_ro("commits", &DeviceCalls::commits)
      .def_ro("decommits", &DeviceCalls::decommits)
      .def_ro("refusals", &DeviceCalls::refusals)
      .def_ro("creates", &DeviceCalls::creates, "cuMemCreate")
      .def_ro("releases", &DeviceCalls::releases, "cuMemRelease")
      .def_ro("maps", &DeviceCalls::maps, "cuMemMap")
      .def_ro("unmaps", &DeviceCalls::unmaps, "cuMemUnmap")
      .def_ro("accesses", &DeviceCalls::accesses, "cuMemSetAccess")
      .def_ro("syncs", &DeviceCalls::syncs, "Times the host waited for the device.")
      .def_ro("waits", &DeviceCalls::waits, "Times one stream was made to wait for another; not in `all`.")
      .def_prop_ro("driver", &DeviceCalls::driver, "Calls to the driver, waits between streams aside.")
      .def_prop_ro("all", &DeviceCalls::all, "Segments and ranges asked for and given back.");
  nb::class_<OperationTimes>(module, "OperationTimes", "Nanoseconds of one operation, once warm.")
      .def_ro("mean", &OperationTimes::mean)
      .def_ro("p50", &OperationTimes::p50)
      .def_ro("p99_9", &OperationTimes::p99_9)
      .def_ro("operations", &OperationTimes::operations);
  nb::class_<OutOfMemory>(module, "OutOfMemory", "The first allocation that could not be placed. Bytes.")
      .def_ro("event", &OutOfMemory::event)
      .def_ro("object", &OutOfMemory::object)
      .def_ro("site", &OutOfMemory::site)
      .def_ro("asked", &OutOfMemory::asked)
      .def_ro("live", &OutOfMemory::live)
      .def_ro("reserved", &OutOfMemory::reserved)
      .def_ro("rounding", &OutOfMemory::rounding)
      .def_ro("reason", &OutOfMemory::reason)
      .def_prop_ro("fragmented", &OutOfMemory::fragmented)
      .def("any_layout_fits", &OutOfMemory::any_layout_fits, "cap"_a);
  nb::class_<Fidelity>(module, "Fidelity", "A run from the recorded state, next to the recording. Bytes.")
      .def_ro("same_settings", &Fidelity::same_settings,
              "The policy's settings are the recording's: all shall agree.")
      .def_ro("start_segments", &Fidelity::start_segments)
      .def_ro("start_objects", &Fidelity::start_objects)
      .def_ro("start_reserved", &Fidelity::start_reserved)
      .def_ro("objects", &Fidelity::objects, "Allocations of the history with a recorded address.")
      .def_ro("agreed", &Fidelity::agreed, "Of these, placed at it.")
      .def_ro("first_difference", &Fidelity::first_difference,
              "The event of the first that was not, or None.")
      .def_ro("recorded_peak", &Fidelity::recorded_peak, "Reserved by the recorded allocator.")
      .def_ro("recorded_calls", &Fidelity::recorded_calls, "Of the recorded allocator to its device.");
  nb::class_<Simulation>(module, "Simulation",
                         "What one policy took for one workload under one cap. Immutable.")
      .def_ro("policy", &Simulation::policy)
      .def_prop_ro("cap", &cap_of, "None: no limit.")
      .def_ro("completed", &Simulation::completed)
      .def_ro("operations", &Simulation::operations)
      .def_ro("failed", &Simulation::failed)
      .def_ro("peak_live", &Simulation::peak_live)
      .def_ro("peak_reserved", &Simulation::peak_reserved)
      .def_ro("peak_committed", &Simulation::peak_committed)
      .def_ro("private_reserved", &Simulation::private_reserved, "By private pools, at the end.")
      .def_ro("peak_reserved_event", &Simulation::peak_reserved_event)
      .def_ro("live_at_peak", &Simulation::live_at_peak)
      .def_ro("rounding_at_peak", &Simulation::rounding_at_peak)
      .def_ro("fragmentation_at_peak", &Simulation::fragmentation_at_peak)
      .def_ro("fragmentation_mean", &Simulation::fragmentation_mean)
      .def_ro("largest_gap", &Simulation::largest_gap)
      .def_ro("largest_gap_event", &Simulation::largest_gap_event)
      .def_ro("calls", &Simulation::calls)
      .def_ro("oom", &Simulation::oom)
      .def_ro("times", &Simulation::times)
      .def_ro("fidelity", &Simulation::fidelity, "None: it started afresh.")
      .def_ro("seconds", &Simulation::seconds)
      .def_prop_ro("phases", &phases, "A dict per phase: phase, calls, total_ns, worst_ns.")
      .def_prop_ro("timeline", &timeline,
                   "Columns event, time, live, reserved, gap: the extremes of each stretch of the trace.");
  nb::class_<CapSearch>(module, "CapSearch",
                        "The smallest cap that completes, as far as was searched. Bytes.")
      .def_ro("cap", &CapSearch::cap, "0: none was found.")
      .def_ro("resolution", &CapSearch::resolution)
      .def_prop_ro("trials", [](const CapSearch& self) {
        nb::list list;
        for (const CapTrial& trial : self.trials) list.append(nb::make_tuple(trial.cap, trial.completed));
        return list;
      });
}

}  // namespace

void bind_simulation(nb::module_& module) {
  nb::class_<Workload>(module, "Workload",
                       "What one device was asked for, made ready to be replayed. Immutable; sizes in bytes.")
      .def(
          "__init__",
          [](Workload* self, const Trace& trace, std::uint16_t device, bool failures) {
            new (self)
                Workload(trace.events(), device, failures ? Workload::Ask::kAll : Workload::Ask::kNone);
            self->set_trace(trace);
          },
          "trace"_a, "device"_a = 0, "failures"_a = true, nb::keep_alive<1, 2>(), Run(),
          "`failures`: requests that the recorded allocator could not serve are asked for, too.")
      .def_static(
          "take",
          [](Trace& trace, std::uint16_t device, bool failures) {
            return Workload::take(trace, device, failures ? Workload::Ask::kAll : Workload::Ask::kNone);
          },
          "trace"_a, "device"_a = 0, "failures"_a = true, nb::keep_alive<0, 1>(), Run(),
          "The same, in half the memory: the trace has no events afterwards, and an array of them that "
          "was taken before reads as zeros.")
      .def_static(
          "up_to_failure",
          [](const Trace& trace, std::uint16_t device, size_t event) {
            const std::span<const Event> events = trace.events();
            if (event >= events.size() || events[event].kind != EventKind::kOutOfMemory)
              throw Error("event " + std::to_string(event) + " is not a request that failed");
            Workload workload(events.first(event + 1), device, Workload::Ask::kLast);
            workload.set_trace(trace);
            return workload;
          },
          "trace"_a, "device"_a, "event"_a, nb::keep_alive<0, 1>(), Run(),
          "The trace until that request failed, and the request; those that failed before are not asked for.")
      .def_static(
          "with_request",
          [](const Trace& trace, std::uint16_t device, Size asked, Size device_free, StreamId stream) {
            const std::span<const Event> known = trace.events();
            std::vector<Event> events(known.begin(), known.end());
            events.push_back({.kind = EventKind::kOutOfMemory,
                              .device = device,
                              .object = device_free,
                              .size = asked,
                              .time = known.empty() ? 0 : known.back().time,
                              .stream = stream});
            Workload workload(events, device, Workload::Ask::kLast);
            workload.set_trace(trace);
            return workload;
          },
          "trace"_a, "device"_a, "asked"_a, "device_free"_a = 0, "stream"_a = 0, nb::keep_alive<0, 1>(),
          Run(),
          "The whole trace, and a request of `asked` bytes at its end, as if it had failed there; those that "
          "failed before are not asked for.")
      .def_prop_ro("failures", &failures,
                   "A dict per request that the recorded allocator could not serve: event, asked, live, "
                   "reserved, device_free, cap (reserved and free), site, stream, pool, asked_again. Bytes.")
      .def_prop_ro("objects", [](const Workload& self) { return self.objects().size(); })
      .def_prop_ro("operations", &Workload::operations)
      .def_prop_ro("peak_live", &Workload::peak_live)
      .def_prop_ro("peak_event", &Workload::peak_event)
      .def_prop_ro("largest", &Workload::largest)
      .def_prop_ro("streams", &Workload::streams)
      .def_prop_ro(
          "private_pools", [](const Workload& self) { return self.pools() - 1; },
          "Of CUDA graphs and MemPools.")
      .def_prop_ro("most_live", &Workload::most_live, "Objects live at once.")
      .def_prop_ro("empty", &Workload::empty, "Objects of 0 bytes, left out.");
  module.def(
      "devices_of", [](const Trace& trace) { return devices_of(trace.events()); }, "trace"_a,
      "The devices that a trace allocates on.");
  bind_results(module);
  module.def(
      "policies",
      [](const std::string& substrate) {
        nb::list list;
        for (const PolicyInfo& info : policies(substrate_named(substrate))) {
          nb::list settings;
          for (const SettingInfo& setting : info.settings) {
            settings.append(nb::make_tuple(setting.name, setting.unit, setting.initial, setting.help));
          }
          list.append(nb::make_tuple(info.name, info.what, settings));
        }
        return list;
      },
      "substrate"_a = "simulation",
      "(name, what it is, [(setting, unit, default, help)]) of every policy that a "
      "'simulation', 'host' or 'device' has.");
  module.def(
      "peer_policies",
      [] {
        nb::list names;
        for (const PolicyInfo& info : policies()) {
          if (info.traits.peer) names.append(info.name);
        }
        return names;
      },
      "The names of those that are only compared with, which no default list has.");
  module.def(
      "default_policies",
      [](bool mallocs) {
        nb::list names;
        for (const std::string& name :
             default_policies(mallocs ? TracedMemory::kMallocs : TracedMemory::kTensors)) {
          names.append(name);
        }
        return names;
      },
      "mallocs"_a,
      "The names of the policies that a trace of a host's mallocs, or else of tensors, is tried with when "
      "nobody names one; ours first.");
  module.def(
      "check_policy",
      [](std::string_view policy, const std::string& substrate) {
        choose_policy(policy, substrate_named(substrate));
      },
      "policy"_a, "substrate"_a = "simulation",
      "Raises Error when there is no such policy or setting there.");
  module.def(
      "torch_settings", &torch_settings, "policy"_a,
      "The text for PYTORCH_CUDA_ALLOC_CONF of a policy of PyTorch; '' for its defaults and for others.");
  module.def(
      "simulate",
      [](const Workload& workload, const std::string& policy, std::optional<Size> cap, bool stop_at_oom,
         std::uint32_t samples, bool timed, bool phases, const std::string& recorded) {
        return simulate(workload, policy,
                        {cap.value_or(kNoCap), stop_at_oom, samples, timed, phases, recorded});
      },
      "workload"_a, "policy"_a, "cap"_a = nb::none(), "stop_at_oom"_a = true, "samples"_a = 1000,
      "timed"_a = true, "phases"_a = false, "recorded"_a = "", Run(),
      "`recorded`: the policy that made the recording; PyTorch's then start from the state that it had.");
  module.def("find_cap", &find_cap, "workload"_a, "policy"_a, "resolution"_a = 0, "recorded"_a = "", Run());
  module.def(
      "recorded_policy", &recorded_policy, "workload"_a,
      "What made the recording: 'pytorch', or 'expandable'. Raises Error when the trace does not tell.");
  module.def(
      "check_recorded_start",
      [](const Workload& workload, const std::string& recorded) { restored_state(workload, recorded); },
      "workload"_a, "recorded"_a, Run(),
      "Raises Error, naming the event, when no allocator can have been in the recorded state.");
}

}  // namespace memoir
