# SPDX-License-Identifier: Apache-2.0
"""Why a recorded program ran out of memory, and what would have served it: every setting of PyTorch's allocator, and
memoir's policies, replayed with the request that failed, under the memory that there was."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from memoir import _core
from memoir._core import Error, Trace, Workload
from memoir.simulation import WHAT_IF, Task, cap_bytes, simulate_task, trace_of, workload_of
from memoir.simulation.held import held_at
from memoir.simulation.recorded import recorded_cap, recorded_policy, recorded_settings
from memoir.sweep import Sweep, cores, sweep
from memoir.traces.places import Places

_FEW = 40_000  # operations to simulate: fewer are done before other processes are up

# What a program can be run with (not `planned`, which is made from the trace itself).
POLICIES = ("memoir", "memoir_plain", "guided", "binned", "split", "rmm", "rmm_arena")

# The same for a program of RAPIDS, by its own memory manager.
_RMM = {
    "rmm": "rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource()))",
    "rmm_arena": "rmm.mr.set_current_device_resource(rmm.mr.ArenaMemoryResource("
    "rmm.mr.CudaMemoryResource(), arena_size={cap}))",
}


def explain(
    path: str,
    *,
    device: int | None = None,
    event: int | None = None,
    cap: str | None = None,
    policies: Sequence[str] = (),
    find_caps: bool = True,
    samples: int = 0,
    workers: int | None = None,
    top: int = 20,
) -> dict[str, Any]:
    """The last request that failed (or the one at `event`), on the device where that was (or `device`).

    `cap`: bytes, instead of what the recording tells. `policies`: judged besides those that always are. `find_caps`:
    searches the smallest cap of each. Plain data, as `memoir oom --json` prints it. Raises Error when no request failed.
    """
    found = find_failure(path, device, event)
    workload, failure = found["workload"], found["failure"]
    inferred, known_from = recorded_cap(failure)
    if cap is None and not failure["reserved"] and not failure["device_free"]:
        raise Error(
            f"{path}: the recording does not tell how much memory there was: give it with --cap 20GiB"
        )
    limit = inferred if cap is None else cap_bytes(cap, workload)
    assert limit is not None
    of_rmm = trace_of(path).meta("source") == "rmm log"
    recorded, start, why_afresh = _recorded(path, workload, of_rmm)
    is_known = start or (not of_rmm and recorded_settings(trace_of(path)) is not None)
    tasks = [
        Task(
            path,
            found["device"],
            policy,
            f"{limit}b",
            find_cap=find_caps,
            timed=False,
            samples=samples,
            from_recorded=start,
            up_to_failure=failure["event"],
        )
        for policy in dict.fromkeys([recorded, *(POLICIES if of_rmm else judged_policies()), *policies])
    ]
    swept = _run(tasks, workers)
    results = swept.values
    needed = failure["live"] + failure["asked"]
    rows = [_row(result, limit, str(path), of_rmm) for result in results]
    if needed > limit and any(row["survives"] for row in rows):  # the request was left out of the replays
        for row in rows:
            _fails_in_the_end(row, failure)
    rows.sort(key=_rank)
    as_recorded = next((row for row in rows if row["policy"] == recorded), None)
    return {
        "trace": str(path),
        "device": found["device"],
        "failures": found["failures"],
        "failure": failure | _where(trace_of(path), failure["site"]),
        "time_ns": found["time_ns"],
        "cap": limit,
        "cap_from": known_from if cap is None else "given",
        "needed": needed,
        # With private pools it does not follow from the bytes live: what is free in one cannot serve another.
        "any_placement_fits": None if workload.private_pools and needed <= limit else needed <= limit,
        "recorded": recorded,
        "recorded_is_known": is_known,
        "recorded_fails_again": not as_recorded["survives"] if as_recorded and is_known else None,
        "start": "recorded" if start else "afresh",
        "start_segments": max((r["fidelity"]["start_segments"] for r in results if r["fidelity"]), default=0),
        "why_afresh": why_afresh,
        "rows": rows,
        "survivors": sum(row["survives"] for row in rows),
        "paste": _to_paste(rows, recorded),
        "held": held_at(trace_of(path), found["device"], failure["event"], top),
        "failed": [{"policy": one.arguments[0].policy, "error": one.error} for one in swept.failed],
        "interrupted": swept.interrupted,
        "results": results,
    }


def _where(trace: Trace, site: int) -> dict[str, str | None]:
    return {"place": Places(trace).of(site) or None, "site": trace.site_chain(site) or None}


def find_failure(path: str, device: int | None = None, event: int | None = None) -> dict[str, Any]:
    """The device, the request, the workload up to it, and how many failed in all."""
    rows = [
        (failure["event"], number, failure)
        for number in (_core.devices_of(trace_of(path)) if device is None else [device])
        for failure in workload_of(path, number).failures
    ]
    wanted = [row for row in rows if event is None or row[0] == event]
    if not wanted:
        where = "" if device is None else f" on device {device}"
        if rows:
            raise Error(
                f"{path}: event {event} is not a request that failed{where}; these are: {_numbers(rows)}"
            )
        raise Error(
            f"{path}: no request failed{where} in this recording; memoir simulate {path} --cap 1.05x says what a smaller "
            "device would do"
        )
    at, number, failure = max(wanted, key=lambda row: row[0])
    return {
        "device": number,
        "failure": failure,
        "failures": len(rows),
        "time_ns": int(trace_of(path).events["time"][at]),  # perhaps read again: a workload takes them
        "workload": workload_of(path, number, up_to_failure=at),
    }


def judged_policies() -> list[str]:
    """PyTorch's allocator with its defaults and with each of the known settings, and memoir's policies."""
    return ["pytorch", *(f"pytorch:{settings}" for settings in WHAT_IF), *POLICIES]


def judge(task: Task) -> dict[str, Any]:
    """simulate_task(), from the start of the recording if it can be, else afresh; with the smallest cap, unless a setting
    has none (a share of the cap itself)."""
    simpler = [task]
    if task.find_cap:
        simpler.append(dataclasses.replace(task, find_cap=False))
    if task.from_recorded:
        simpler += [dataclasses.replace(one, from_recorded=False) for one in simpler]
    for one in simpler[:-1]:
        with contextlib.suppress(Error):
            return simulate_task(one)
    return simulate_task(simpler[-1])


def paste_line(policy: str, path: str, cap: int, of_rmm: bool = False) -> str | None:
    """What a program is started with to have that policy: an environment variable, or a line of Python. None: a
    program of RAPIDS cannot have it."""
    if of_rmm:
        return _RMM[policy].format(cap=cap) if policy in _RMM else None
    settings = _core.torch_settings(policy)
    if settings:
        return f"PYTORCH_CUDA_ALLOC_CONF={settings}"
    if policy == "pytorch":
        return "unset PYTORCH_CUDA_ALLOC_CONF"
    if policy == "guided":
        return f'memoir.torch.use_pool("guided", plan={json.dumps(path)})'
    return f'memoir.torch.use_pool("{policy}")'


def _recorded(path: str, workload: Workload, of_rmm: bool) -> tuple[str, bool, str | None]:
    """The policy that made the recording, whether replays can start from its state, and why not."""
    if of_rmm:
        return "rmm", False, "a log of RMM says neither which resource it had, nor what that held."
    try:
        return recorded_policy(workload, recorded_settings(trace_of(path))), True, None
    except Error as error:
        return "pytorch", False, str(error)


def _run(tasks: list[Task], workers: int | None) -> Sweep:
    if workers is None:
        operations = sum(
            workload_of(t.path, t.device, up_to_failure=t.up_to_failure).operations for t in tasks
        )
        workers = 1 if operations < _FEW else cores()
    return sweep(judge, [(task,) for task in tasks], workers=workers, title="replaying")


def _row(result: dict[str, Any], cap: int, path: str, of_rmm: bool) -> dict[str, Any]:
    smallest = result.get("smallest_cap", {}).get("cap")
    if smallest is not None and result["completed"]:
        smallest = min(smallest, cap)  # the search ends at steps, the cap lies at none
    return {
        "policy": result["policy"],
        "paste": paste_line(result["policy"], path, cap, of_rmm),
        "survives": result["completed"],
        "smallest_cap": smallest,
        "room": None if smallest is None else cap - smallest,
        "peak_reserved": result["peak_reserved"],
        "device_calls": result["device_calls"]["all"],
        "start": result["start"] or "afresh",
        "out_of_memory": result["out_of_memory"],
    }


def _fails_in_the_end(row: dict[str, Any], failure: dict[str, Any]) -> None:
    """A replay leaves out a request that no device could serve: none serves it, under no cap."""
    row |= {"smallest_cap": None, "room": None}
    if row["survives"]:
        asked, live = failure["asked"], failure["live"]
        row |= {
            "survives": False,
            "out_of_memory": {"event": failure["event"], "asked": asked, "live": live},
        }


def _rank(row: dict[str, Any]) -> tuple[Any, ...]:
    """Survivors first, then by room, or by what was held where no caps were searched; else in the order of judging."""
    unknown = row["smallest_cap"] is None
    return not row["survives"], unknown, row["smallest_cap"] or row["peak_reserved"]


def _to_paste(rows: list[dict[str, Any]], recorded: str) -> dict[str, str | None]:
    """The best of PyTorch's settings that survives, and the best of memoir's pools: one that needs no plan, if any."""

    def first(wanted: Callable[[dict[str, Any]], bool]) -> str | None:
        return next((row["paste"] for row in rows if row["survives"] and row["paste"] and wanted(row)), None)

    def is_pool(row: dict[str, Any]) -> bool:
        return row["policy"].split(",")[0] in POLICIES

    return {
        "pytorch": first(lambda row: row["policy"].startswith("pytorch") and row["policy"] != recorded),
        "memoir": first(lambda row: is_pool(row) and "plan=" not in row["paste"]) or first(is_pool),
    }


def _numbers(rows: list[tuple[int, int, dict[str, Any]]]) -> str:
    shown = ", ".join(f"{row[0]:,}" for row in rows[:10])
    return shown + (", ..." if len(rows) > 10 else "")
