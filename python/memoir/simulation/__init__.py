# SPDX-License-Identifier: Apache-2.0
"""memoir.simulate(): what would these allocators have taken for this trace, and would they have survived that cap?

Results are plain dictionaries of numbers, as `memoir simulate --json` prints them: bytes, nanoseconds, and shares from
0 to 1. An event is named by its index in the trace.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from memoir import _core
from memoir._core import Error, Trace, Workload
from memoir.base.quantities import BYTE_UNITS, read_amount
from memoir.simulation.device_costs import CALLS, milliseconds, read_costs
from memoir.simulation.recorded import recorded_cap, recorded_policy, recorded_settings
from memoir.sweep import Sweep, cores, sweep
from memoir.traces.files import ONLY, only_device, open_chosen, open_trace

_FEW = 400_000  # operations to simulate: fewer are done before other processes are up
_MANY = 2_000_000  # events of a trace: they are not kept next to what is made of them


@dataclass(frozen=True)
class Task:
    """One trace, device, policy and cap. Plain values only: it travels to other processes."""

    path: str
    device: int
    policy: str
    cap: str | None = None  # bytes ("20GiB"), a multiple of the most bytes live ("1.05x"), or "recorded"
    find_cap: bool = False
    stop_at_oom: bool = True
    timed: bool = True
    samples: int = 0  # of the timeline
    phases: bool = False
    from_recorded: bool = False
    only: str = "both"  # of the trace's allocations: tensors, malloc
    up_to_failure: int | None = None  # the trace until this event, a request that failed, and that request
    device_costs: str = ""  # file of a price list for the driver's calls; "": an A100's
    request: tuple[int, int] | None = (
        None  # the whole trace, and at its end one of so many bytes, with so many free
    )

    @property
    def asks_failures(self) -> bool:
        """A comparison with what the program did leaves out what it did not get."""
        return not self.from_recorded or self.cap is not None


def cap_bytes(cap: str | int | None, workload: Workload) -> int | None:
    """The bytes of a cap as people write it; None for none."""
    if isinstance(cap, int) and not 0 <= cap < 2**63:
        raise Error(f"a cap of {cap:.3g} bytes: give 0 or more, and less than 2^63")
    if cap is None or isinstance(cap, int):
        return cap
    if cap == "recorded":
        if not workload.failures:
            raise Error("a cap of 'recorded' needs a request that failed, and this recording has none")
        return recorded_cap(workload.failures[-1])[0]
    amount, unit = read_amount(cap) or (Fraction(0), None)
    if unit == "x":
        if amount < 1:
            raise Error(f"a cap of {cap} is under the most bytes that are live at once: nothing can complete")
        return min(math.ceil(workload.peak_live * amount), 2**62)
    if unit not in BYTE_UNITS:
        raise Error(
            f"'{cap}' is not a cap: give bytes (20GiB), a multiple of the most bytes live (1.05x), or 'recorded'"
        )
    return min(int(amount * BYTE_UNITS[unit]), 2**62)


def simulate(
    trace: str | Path | Trace | Workload,
    policy: str | None = None,
    *,
    device: int | None = None,
    cap: str | int | None = None,
    stop_at_oom: bool = True,
    timed: bool = True,
    samples: int = 1000,
    phases: bool = False,
    from_recorded: bool = False,
) -> _core.Simulation:
    """Simulates one policy on one device of a trace. _core.Simulation describes the result.

    `policy` is a name with settings, "span,granule=64KiB" (None: "span"); `cap` bytes, "1.05x", or "recorded": what the
    recorded allocator held when a request failed, and what the device had free. `from_recorded`: PyTorch's policies
    start from the segments that were recorded when the history began, and are compared with the recording; `policy`
    None is then the recorded allocator. Requests that failed are made as well, except in a comparison without a cap.
    Raises Error for a trace, device or policy that does not exist.
    """
    if isinstance(trace, (str, Path)):
        trace, _ = open_chosen(trace)
    settings = recorded_settings(trace) if from_recorded and isinstance(trace, Trace) else None
    if isinstance(trace, Trace):
        trace = Workload(trace, only_device(trace, device), not from_recorded or cap is not None)
    recorded = recorded_policy(trace, settings) if from_recorded else ""
    policy = policy or recorded or "span"
    return _core.simulate(trace, policy, cap_bytes(cap, trace), stop_at_oom, samples, timed, phases, recorded)


# --- sweeps ---


def expand(policies: Sequence[str]) -> list[str]:
    """`all` becomes every policy; `key=a|b` one policy for each value, in every combination; `one|another` both."""
    names: list[str] = []
    for policy in (one for text in policies for one in _alternatives(text)):
        if policy == "all":
            names += [name for name, _, _ in _core.policies()]
            continue
        choices = [_choices(part) for part in _parts(policy)]
        names += [",".join(combination) for combination in itertools.product(*choices)]
    unique = list(dict.fromkeys(names))
    for name in unique:
        _core.check_policy(name)
    return unique


def _alternatives(text: str) -> list[str]:
    """Split where a whole policy begins behind a `|`, in whatever order they stand; else it is one of several values."""
    names = "|".join(["all", *(name for name, _, _ in _core.policies())])
    return re.split(rf"\|(?=(?:{names})(?:$|[,:|]))", text)


def _parts(policy: str) -> list[str]:
    """Split at commas, but for those in brackets, which belong to a value."""
    return re.split(r",(?![^\[]*\])", policy)


def _choices(part: str) -> list[str]:
    """`key=a|b` or `key:a|b`: one for each value."""
    first = part.find("|")
    key = max(part.rfind("=", 0, max(first, 0)), part.rfind(":", 0, max(first, 0))) + 1
    return [part[:key] + value for value in part[key:].split("|")] if first >= 0 else [part]


def tasks_of(
    paths: Sequence[str],
    policies: Sequence[str],
    caps: Sequence[str | None] = (None,),
    *,
    device: int | None = None,
    with_recorded: bool = False,
    **options: Any,
) -> list[Task]:
    """Every trace x device x cap x policy, in this order. Reads every trace once, so that a bad one is told at once.

    `with_recorded`: the policy that made the recording comes before the others.
    """
    expanded = expand(policies)
    tasks = []
    for path in paths:
        only = options.get("only") or _chosen(*_identity(path, ""))
        devices = _devices_of(*_identity(path, only))
        if device is not None and device not in devices:
            only_device(trace_of(path, only), device)  # which says so
        devices = devices if device is None else (device,)
        for number, cap in itertools.product(devices, caps):
            cap_bytes(cap, workload_of(path, number, only))  # a cap that is none is told before anything runs
        for number in devices:
            names = expanded
            if options.get("from_recorded"):
                recorded = _recorded(path, number, only)
                names = list(dict.fromkeys([recorded] * with_recorded + names))
            for cap, name in itertools.product(caps, names):
                tasks.append(Task(str(path), number, name, cap, **{**options, "only": only}))
    return tasks


def run(tasks: Sequence[Task], *, engine: str = "local", workers: int | None = None, **options: Any) -> Sweep:
    """The result of every task, as simulate_task() gives it; see memoir.sweep."""
    if engine == "local" and workers is None:
        operations = sum(_workload(task).operations for task in tasks[:200])
        operations *= 12 if any(task.find_cap for task in tasks) else 1
        workers = 1 if operations < _FEW else cores()
    return sweep(
        simulate_task,
        [(task,) for task in tasks],
        engine=engine,
        workers=workers,
        title="simulating",
        **options,
    )


def simulate_task(task: Task) -> dict[str, Any]:
    """The result of one task, ready for JSON."""
    passes = _passes(task)  # before a workload takes the events
    workload = _workload(task)
    cap = cap_bytes(task.cap, workload)
    recorded = _recorded(task.path, task.device, task.only) if task.from_recorded else ""
    done = _core.simulate(
        workload, task.policy, cap, task.stop_at_oom, task.samples, task.timed, task.phases, recorded
    )
    result = {"trace": task.path, "device": task.device, "policy": task.policy, "cap": cap}
    calls = {name: getattr(done.calls, name) for name in ("refusals", "commits", "decommits", *CALLS)}
    driver_ms = milliseconds(calls, read_costs(task.device_costs))
    settings = _core.torch_settings(task.policy)
    result["torch_settings"] = f"PYTORCH_CUDA_ALLOC_CONF={settings}" if settings else None
    result |= {
        "workload": {
            name: getattr(workload, name)
            for name in (
                "operations",
                "objects",
                "streams",
                "private_pools",
                "peak_event",
                "largest",
                "most_live",
                "empty",
            )
        }
        | {"failures": workload.failures},
        "completed": done.completed,
        "floor": workload.peak_live,
        "peak_live": done.peak_live,
        "peak_reserved": done.peak_reserved,
        "reserved_ratio": _ratio(done.peak_reserved, workload.peak_live),
        "peak_committed": done.peak_committed,
        "private_reserved": done.private_reserved,
        "peak_reserved_event": done.peak_reserved_event,
        "rounding_at_peak": done.rounding_at_peak,
        "fragmentation_at_peak": done.fragmentation_at_peak,
        "fragmentation_mean": done.fragmentation_mean,
        "largest_gap": done.largest_gap,
        "largest_gap_event": done.largest_gap_event,
        "operations": done.operations,
        "failed": done.failed,
        "device_calls": {"all": done.calls.all, "driver": done.calls.driver, **calls},
        "driver_ms": driver_ms,
        "passes": passes,
        "driver_ms_per_pass": driver_ms / passes if passes else None,
        "out_of_memory": _out_of_memory(done, task, workload),
        "start": ("recorded" if done.fidelity else "afresh") if task.from_recorded else None,
        "fidelity": _fidelity(done, task, recorded),
        "ns_per_operation": {
            name: getattr(done.times, name) for name in ("mean", "p50", "p99_9", "operations")
        }
        if task.timed
        else None,
        "phases": done.phases,
        "seconds": done.seconds,
    }
    if task.find_cap:
        found = _core.find_cap(workload, task.policy, recorded=recorded)
        result["smallest_cap"] = {
            "cap": found.cap or None,
            "ratio": _ratio(found.cap, workload.peak_live) if found.cap else None,
            "resolution": found.resolution,
            "trials": [{"cap": cap, "completed": completed} for cap, completed in found.trials],
        }
    if task.samples:
        result["timeline"] = {name: column.tolist() for name, column in done.timeline.items()}
    return result


# Settings that people try when memory runs out, and what each is for.
WHAT_IF = (
    "max_split_size_mb:64",
    "max_split_size_mb:256",
    "max_split_size_mb:256,max_non_split_rounding_mb:64",
    "large_segment_size_mb:64",
    "large_segment_size_mb:256",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:16",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.98",
    "expandable_segments:True",
    "expandable_segments:True,large_segment_size_mb:64",
    "expandable_segments:True,roundup_power2_divisions:16",
)


def default_policies(paths: Sequence[str], only: str | None = None) -> list[str]:
    """Those of what the traces are of: tensors, which a device has, or a host's mallocs, or both."""
    of = {only or {"tensors": "tensors", "both": "malloc"}[_chosen(*_identity(path, ""))] for path in paths}
    devices, mallocs = of & {"tensors", "both"}, of & {"malloc", "both"}
    tried = [*(_core.default_policies(mallocs=False) if devices else ())]
    return tried + [*(_core.default_policies(mallocs=True) if mallocs else ())]


def what_if_policies(capped: bool) -> list[str]:
    """Every policy for devices but peers, and PyTorch's with each of the settings above; without a cap, there is nothing
    to take a share of."""
    for_devices = {"planned", *(name for name, _, _ in _core.policies("device"))}
    for_devices -= {"expandable", *_core.peer_policies()}
    names = [name for name, _, _ in _core.policies() if name in for_devices]
    return names + [f"pytorch:{s}" for s in WHAT_IF if capped or "memory_fraction" not in s]


def _out_of_memory(done: _core.Simulation, task: Task, workload: Workload) -> dict[str, Any] | None:
    oom = done.oom
    if oom is None:
        return None
    names = ("event", "object", "asked", "live", "reserved", "rounding", "fragmented", "reason")
    site = _trace_of(*_identity(task.path, task.only)).site_chain(oom.site) if oom.site else ""
    # With private pools it does not follow from the bytes live: what is free in one cannot serve another.
    known = workload.private_pools == 0
    any_layout = oom.any_layout_fits(done.cap) if known and done.cap is not None else None
    return {name: getattr(oom, name) for name in names} | {"site": site, "any_layout_fits": any_layout}


def _fidelity(done: _core.Simulation, task: Task, recorded: str) -> dict[str, Any] | None:
    if done.fidelity is None:
        return None
    settings_known = recorded_settings(_trace_of(*_identity(task.path, task.only))) is not None
    names = ["same_settings", "start_segments", "start_objects", "start_reserved", "objects", "agreed"]
    names += ["first_difference", "recorded_peak", "recorded_calls"]
    row = {"recorded_policy": recorded, "settings_recorded": settings_known}
    return row | {name: getattr(done.fidelity, name) for name in names}


def _passes(task: Task) -> int:
    return _passes_of(*_identity(task.path, task.only))


@functools.lru_cache(maxsize=64)
def _passes_of(path: str, changed: int, size: int, only: str) -> int:
    return _core.passes_of(_with_events(path, changed, size, only))


def _ratio(value: int, floor: int) -> float | None:
    return value / floor if floor else None


# A process reads a trace once for all its tasks, unless the file changes.


def _identity(path: str, only: str) -> tuple[str, int, int, str]:
    try:
        stat = os.stat(path)
    except OSError as error:
        raise Error(f"{path}: cannot be read: {error.strerror}") from None
    return str(path), stat.st_mtime_ns, stat.st_size, only


@functools.lru_cache(maxsize=64)
def _chosen(path: str, changed: int, size: int, _only: str) -> str:
    """Its tensors, where a trace has any."""
    return "tensors" if _with_events(path, changed, size, "tensors").allocates else "both"


@functools.lru_cache(maxsize=4)
def _trace_of(path: str, _changed: int, _size: int, only: str) -> Trace:
    return open_trace(path, ONLY[only])


def _with_events(path: str, changed: int, size: int, only: str) -> Trace:
    """A trace whose events no workload has taken."""
    trace = _trace_of(path, changed, size, only)
    return trace if trace.event_count else open_trace(path, ONLY[only])


@functools.lru_cache(maxsize=64)
def _devices_of(path: str, changed: int, size: int, only: str) -> tuple[int, ...]:
    return tuple(_core.devices_of(_with_events(path, changed, size, only)))


@functools.lru_cache(maxsize=4)
def _workload_of(
    path: str,
    changed: int,
    size: int,
    only: str,
    device: int,
    failures: bool = True,
    up_to_failure: int | None = None,
    request: tuple[int, int] | None = None,
) -> Workload:
    try:
        trace = _with_events(path, changed, size, only)
        if request is not None:
            return Workload.with_request(trace, device, *request)
        if up_to_failure is not None:
            return Workload.up_to_failure(trace, device, up_to_failure)
        if trace.event_count >= _MANY and _devices_of(path, changed, size, only) == (device,):
            return Workload.take(trace, device, failures)
        return Workload(trace, device, failures)
    except Error as error:
        raise Error(f"{path}: {error}") from None


@functools.lru_cache(maxsize=4)
def _recorded_of(path: str, changed: int, size: int, only: str, device: int) -> str:
    workload = _workload_of(path, changed, size, only, device)
    trace = _trace_of(path, changed, size, only)
    try:
        return recorded_policy(workload, recorded_settings(trace))
    except Error as error:
        where = f", device {device}" if len(_devices_of(path, changed, size, only)) > 1 else ""
        raise Error(f"{path}{where}: {error}") from None


def _recorded(path: str, device: int, only: str) -> str:
    return _recorded_of(*_identity(path, only), device)


def trace_of(path: str, only: str = "both") -> Trace:
    """Read once by a process, unless the file changes."""
    return _with_events(*_identity(path, only))


def workload_of(
    path: str,
    device: int,
    only: str = "both",
    *,
    failures: bool = True,
    up_to_failure: int | None = None,
    request: tuple[int, int] | None = None,
) -> Workload:
    """As trace_of(), with all requests that failed or none, or up to one of them, or with one more at its end (bytes,
    bytes free on the device then)."""
    return _workload_of(*_identity(path, only), device, failures, up_to_failure, request)


def _workload(task: Task) -> Workload:
    identity = _identity(task.path, task.only)
    return _workload_of(*identity, task.device, task.asks_failures, task.up_to_failure, task.request)
