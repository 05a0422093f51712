# SPDX-License-Identifier: Apache-2.0
"""Why a recorded program ran out of memory, and what would have served it: every setting of PyTorch's allocator, and
memoir's policies, replayed with the request that failed, under the memory that there was."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from memoir import _core
from memoir._core import Error, Trace, Workload
from memoir.simulation import WHAT_IF, Task, cap_bytes, simulate_task, trace_of, workload_of
from memoir.simulation.asked import Asked, read_asked
from memoir.simulation.held import held_at
from memoir.simulation.recorded import recorded_limits, recorded_policy, recorded_settings
from memoir.sweep import Sweep, cores, sweep
from memoir.traces.places import Places

_FEW = 40_000  # operations to simulate: fewer are done before other processes are up

# What a program can be run with (not `planned`, which is made from the trace itself).
POLICIES = ("memoir", "memoir_plain", "guided")

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
    asked: str | None = None,
    cap: str | None = None,
    policies: Sequence[str] = (),
    find_caps: bool = True,
    samples: int = 0,
    workers: int | None = None,
    top: int = 20,
) -> dict[str, Any]:
    """The last request that failed (or the one at `event`), on the device where that was (or `device`).

    `asked`: a request that the recording does not hold, at its end: bytes, or the text of PyTorch's error. `cap`: bytes,
    instead of what the recording tells. `policies`: judged besides those that always are. `find_caps`: searches the
    smallest cap of each. Plain data, as `memoir oom --json` prints it. Raises Error when no request failed.
    """
    request = None if asked is None else read_asked(asked)
    found = find_failure(path, device, event) if request is None else _at_the_end(path, device, request)
    workload, failure = found["workload"], found["failure"]
    limit, most, known_from = _limits(path, workload, failure, cap, request)
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
            up_to_failure=failure["event"] if request is None else None,
            request=found["request"],
        )
        for policy in dict.fromkeys(
            [recorded, *((*POLICIES, *_RMM) if of_rmm else judged_policies()), *policies]
        )
    ]
    swept = _run(tasks, most, workers)
    results = swept.values
    needed = failure["live"] + failure["asked"]
    rows = [_row(result, limit, str(path), of_rmm) for result in results]
    if needed > most and any(
        row["verdict"] != "no" for row in rows
    ):  # the request was left out of the replays
        for row in rows:
            _fails_in_the_end(row, failure)
    rows.sort(key=_rank)
    as_recorded = next((row for row in rows if row["policy"] == recorded), None)
    fails_again = as_recorded["verdict"] != "yes" if as_recorded and is_known else None
    return {
        "trace": str(path),
        "device": found["device"],
        "failures": found["failures"],
        "failure": failure | _where(trace_of(path), failure["site"]),
        "time_ns": found["time_ns"],
        "asked_for": asked is not None,
        "cap": limit,
        "cap_most": most,
        "cap_from": known_from,
        "needed": needed,
        "any_placement_fits": _fits(needed, limit, most, workload.private_pools),
        "recorded": recorded,
        "recorded_is_known": is_known,
        "recorded_fails_again": fails_again,
        "start": "recorded" if start else "afresh",
        "start_segments": max((r["fidelity"]["start_segments"] for r in results if r["fidelity"]), default=0),
        "why_afresh": why_afresh,
        "rows": rows,
        "survivors": sum(row["verdict"] == "yes" for row in rows),
        "perhaps": sum(row["verdict"] == "perhaps" for row in rows),
        # What serves a request that the recorded settings serve, too, is no advice.
        "paste": {"pytorch": None, "memoir": None} if fails_again is False else _to_paste(rows, recorded),
        "held": held_at(trace_of(path), found["device"], failure["event"], top),
        "failed": [{"policy": one.arguments[0].policy, "error": one.error} for one in swept.failed],
        "interrupted": swept.interrupted,
        "results": results,
    }


def _where(trace: Trace, site: int) -> dict[str, str | None]:
    return {"place": Places(trace).of(site) or None, "site": trace.site_chain(site) or None}


def _limits(
    path: str, workload: Workload, failure: dict[str, Any], cap: str | None, request: Asked | None
) -> tuple[int, int, str]:
    """(the least that the limit was, the most, where they are known from). Raises Error where nothing tells."""
    if cap is not None:
        given = cap_bytes(cap, workload)
        assert given is not None
        return given, given, "given"
    if request is not None and request.cap is not None:
        return request.cap, request.cap, "the error"
    if request is not None and request.free is None:
        raise Error(
            f"{path}: how much memory was there? Give it with --cap 20GiB, or the whole text of the error with --asked"
        )
    if not failure["reserved"]:
        live, free = failure["live"], failure["device_free"]
        known = f", only that {live + free:,} bytes were live or free" if free else ""
        raise Error(
            f"{path}: the recording has no segments, so it does not tell what the allocator held{known}: give the memory "
            "that there was with --cap 20GiB"
        )
    return recorded_limits(failure)


def _fits(needed: int, limit: int, most: int, private_pools: int) -> bool | None:
    """Whether some placement could have served it; None where that is not known. With private pools it does not follow
    from the bytes live: what is free in one cannot serve another."""
    if needed > most:
        return False
    return None if needed > limit or private_pools else True


def _at_the_end(path: str, device: int | None, request: Asked) -> dict[str, Any]:
    """As find_failure(), of a request that the recording does not hold: it comes last."""
    trace = trace_of(path)
    devices = _core.devices_of(trace)
    number = next((one for one in (device, request.device) if one in devices), devices[0])
    if device is not None and device not in devices:
        raise Error(f"{path}: has no device {device}; it has {', '.join(map(str, devices))}")
    times = trace.events["time"]
    at_end = (request.asked, request.free or 0)
    workload = workload_of(path, number, request=at_end)
    return {
        "device": number,
        "failure": workload.failures[-1],
        "failures": len(workload.failures),
        "time_ns": int(times[-1]) if len(times) else 0,
        "workload": workload,
        "request": at_end,
    }


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
        "request": None,
    }


def judged_workload(answer: dict[str, Any]) -> Workload:
    """What explain() replayed."""
    failure = answer["failure"]
    if answer["asked_for"]:
        request = (failure["asked"], failure["device_free"])
        return workload_of(answer["trace"], answer["device"], request=request)
    return workload_of(answer["trace"], answer["device"], up_to_failure=failure["event"])


def judged_policies() -> list[str]:
    """PyTorch's allocator with its defaults and with each of the known settings, and memoir's policies."""
    return ["pytorch", *(f"pytorch:{settings}" for settings in WHAT_IF), *POLICIES]


def judge(task: Task, most: int) -> dict[str, Any]:
    """simulate_task(), from the start of the recording if it can be, else afresh; with the smallest cap, unless a setting
    has none (a share of the cap itself); and `verdict`, where the limit was from the task's cap to `most`."""
    simpler = [task]
    if task.find_cap:
        simpler.append(dataclasses.replace(task, find_cap=False))
    if task.from_recorded:
        simpler += [dataclasses.replace(one, from_recorded=False) for one in simpler]
    for one in simpler[:-1]:
        with contextlib.suppress(Error):
            return _judged(one, simulate_task(one), most)
    return _judged(simpler[-1], simulate_task(simpler[-1]), most)


def _judged(task: Task, result: dict[str, Any], most: int) -> dict[str, Any]:
    """With its verdict: what one segment more or less of memory would change is "perhaps". A program has other memory
    than it had when it was recorded by more than that: its libraries', its neighbours'."""
    step, limit = _step(task.policy), result["cap"]
    smallest = result.get("smallest_cap", {}).get("cap")

    def completes(cap: int) -> bool:
        try:
            other = dataclasses.replace(task, cap=f"{cap}b", find_cap=False, samples=0)
            return bool(simulate_task(other)["completed"])
        except Error:  # a cap that is under one request, or under the start of the recording
            return False

    if result["completed"]:
        sure = smallest <= limit - step if smallest else completes(limit - step)
        verdict = "yes" if sure else "perhaps"
    elif smallest:
        verdict = "perhaps" if smallest <= most + step else "no"
    else:
        verdict = "perhaps" if completes(most + step) else "no"
    return result | {"verdict": verdict}


def _step(policy: str) -> int:
    """Bytes in which the policy takes memory from the device."""
    if policy.split(",")[0].split(":")[0] in ("memoir", "guided", "span", "planned"):
        return 2 * 2**20
    large = re.search(r"large_segment_size_mb:(\d+)", policy)
    return int(large[1]) * 2**20 if large else 20 * 2**20


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


def _run(tasks: list[Task], most: int, workers: int | None) -> Sweep:
    if workers is None:
        of_one = workload_of(
            tasks[0].path, tasks[0].device, up_to_failure=tasks[0].up_to_failure, request=tasks[0].request
        )
        workers = 1 if len(tasks) * of_one.operations < _FEW else cores()
    return sweep(judge, [(task, most) for task in tasks], workers=workers, title="replaying")


_SURVIVES = {"yes": True, "perhaps": None, "no": False}


def _row(result: dict[str, Any], cap: int, path: str, of_rmm: bool) -> dict[str, Any]:
    smallest = result.get("smallest_cap", {}).get("cap")
    if smallest is not None and result["completed"]:
        smallest = min(smallest, cap)  # the search ends at steps, the cap lies at none
    return {
        "policy": result["policy"],
        "paste": paste_line(result["policy"], path, cap, of_rmm),
        "verdict": result["verdict"],
        "survives": _SURVIVES[result["verdict"]],
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
    if row["verdict"] != "no":
        asked, live = failure["asked"], failure["live"]
        row |= {
            "verdict": "no",
            "survives": False,
            "out_of_memory": {"event": failure["event"], "asked": asked, "live": live},
        }


def _rank(row: dict[str, Any]) -> tuple[Any, ...]:
    """Survivors first, then by room, or by what was held where no caps were searched; else in the order of judging."""
    unknown = row["smallest_cap"] is None
    return (
        ("yes", "perhaps", "no").index(row["verdict"]),
        unknown,
        row["smallest_cap"] or row["peak_reserved"],
    )


def _to_paste(rows: list[dict[str, Any]], recorded: str) -> dict[str, str | None]:
    """The best of PyTorch's settings that survives, and the best of memoir's pools: one that needs no plan, if any. What
    survives only perhaps is named where nothing else does."""
    verdict = "yes" if any(row["verdict"] == "yes" and row["paste"] for row in rows) else "perhaps"
    survivors = [row for row in rows if row["verdict"] == verdict and row["paste"]]

    def first(wanted: Callable[[dict[str, Any]], bool]) -> str | None:
        return next((row["paste"] for row in survivors if wanted(row)), None)

    def is_pool(row: dict[str, Any]) -> bool:
        return row["policy"].split(",")[0] in (*POLICIES, *_RMM)

    return {
        "pytorch": first(lambda row: row["policy"].startswith("pytorch") and row["policy"] != recorded),
        "memoir": first(lambda row: is_pool(row) and "plan=" not in row["paste"]) or first(is_pool),
    }


def _numbers(rows: list[tuple[int, int, dict[str, Any]]]) -> str:
    shown = ", ".join(f"{row[0]:,}" for row in rows[:10])
    return shown + (", ..." if len(rows) > 10 else "")
