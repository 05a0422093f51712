# SPDX-License-Identifier: Apache-2.0
"""A trace in numbers: what `memoir show x.trace` prints, as plain data; every key is in its --json."""

from __future__ import annotations

from typing import Any

import numpy as np

from memoir._core import EventKind, FrameKind, Lives, Trace
from memoir.traces.places import Places
from memoir.views.native_summary import is_native
from memoir.views.trace_objects import Objects, event_at, parts_of, where_kind

LIFETIME_DECADES = [10**n for n in range(3, 11)]  # nanoseconds: 1 us to 10 s
SIZE_DECADES = [10**n for n in range(2, 10)]  # bytes: 100 B to 1 GB


def summarize(trace: Trace, *, points: int = 200, top: int = 20, operators: bool = True) -> dict[str, Any]:
    """The whole summary. `points`: samples of the load curve; `top`: rows of each table of operators, which are there with
    `operators`: they cost as much as all else."""
    events = trace.events
    lives = Lives(trace)
    objects = Objects.of(trace, lives)
    load = load_of(events, lives, points)
    threads: set[int] = set()
    for part in parts_of(events):
        threads.update(np.unique(part["thread"][part["kind"] <= EventKind.kPassEnd]).tolist())
    result = {
        "complete": trace.complete or trace.end is not None,  # what memoir attach switched off says its end
        "lost_bytes": trace.lost_bytes,
        "dropped": trace.dropped,
        "start_ns": trace.start,
        "duration_ns": int(events["time"][-1]) if len(events) else 0,
        "meta": {key: trace.meta(key) for key in trace.meta_keys()},
        "events": len(events),
        "threads": len(threads),
        **_counts(objects),
        "peak": load["peak"],
        "devices": _devices(trace, objects),
        "passes": _passes(events, objects),
        "lifetimes": _lifetimes(events, objects),
        **(_operators(trace, objects, top) if operators else dict.fromkeys(_OPERATORS, [])),
        "load_curve": load["curve"],
    }
    result["graph"] = _graph(result)
    return result


def _counts(objects: Objects) -> dict[str, dict[str, int]]:
    counts = {
        name: {"count": 0, "bytes": 0}
        for name in ("allocations", "frees", "never_freed", "freed_on_another_thread")
    }
    for part in objects.parts():
        size, freed = part.size, part.freed
        elsewhere = freed & (part.free_thread != part.thread)
        for row, which in zip(counts.values(), (freed | True, freed, ~freed, elsewhere), strict=True):
            row["count"] += int(which.sum())
            row["bytes"] += int(size[which].sum())
    return counts


def _count(size: np.ndarray) -> dict[str, int]:
    return {"count": len(size), "bytes": int(size.sum())}


_SEGMENTS = {  # kind -> its name, and what it does to the bytes that are reserved
    EventKind.kSegmentAllocate: ("segment_allocate", 1),
    EventKind.kSegmentFree: ("segment_free", -1),
    EventKind.kSegmentMap: ("segment_map", 1),
    EventKind.kSegmentUnmap: ("segment_unmap", -1),
}


def _devices(trace: Trace, objects: Objects) -> list[dict[str, Any]]:
    """One row per device, if the trace names any: streams, peaks, what its allocator asked of it. What a program maps by
    itself is no device's."""
    events = trace.events
    native = is_native(trace)
    of_a_device = [
        int(kind)
        for kind in EventKind
        if kind >= EventKind.kSegmentAllocate
        and not (native and kind in (EventKind.kSegmentMap, EventKind.kSegmentUnmap))
    ]
    if not any(
        np.any(np.isin(part["kind"], of_a_device)) or np.any(part["device"] > 0) or np.any(part["stream"] > 0)
        for part in parts_of(events)
    ):
        return []
    size = objects.size
    speaks = (events["kind"] <= EventKind.kFree) | (events["kind"] >= EventKind.kSegmentAllocate)
    speaks &= events["kind"] != EventKind.kPool
    died = np.flatnonzero(objects.freed)
    ids = events[events["kind"] == EventKind.kPool][["object", "size"]].tolist()
    rows = []
    for device in np.unique(events["device"][speaks]).tolist():
        mine = speaks & (events["device"] == device)
        born = events["device"][objects.born] == device
        change = np.zeros(len(events), np.int64)
        change[objects.born[born]] = size[born]
        dead = died[born[died]]
        change[objects.died[dead]] = -size[dead]
        live = np.cumsum(change)
        reserved, calls = np.zeros(len(events), np.int64), {}
        for kind, (name, sign) in _SEGMENTS.items():
            which = np.flatnonzero(mine & (events["kind"] == kind))
            reserved[which] = sign * events["size"][which].astype(np.int64)
            calls[name] = len(which)
        pools = [
            {"pool": pool, "id": list(ids[pool - 1]), "peak_reserved_bytes": peak}
            for pool, peak in _private_peaks(events, reserved).items()
        ]
        reserved = np.cumsum(reserved)
        failed = np.flatnonzero(mine & (events["kind"] == EventKind.kOutOfMemory))
        rows.append(
            {
                "device": device,
                "streams": np.unique(events["stream"][mine]).tolist(),
                "allocations": _count(size[born]),
                "peak_live_bytes": int(live.max()),
                "peak_reserved_bytes": int(reserved.max()) if any(calls.values()) else None,
                "private_pools": pools,
                "segments": calls,
                "out_of_memory": [
                    {
                        "event": int(at),
                        "time_ns": int(events["time"][at]),
                        "asked_bytes": int(events["size"][at]),
                        "free_bytes": int(events["object"][at]),
                        "live_bytes": int(live[at]),
                        "reserved_bytes": int(reserved[at]),
                    }
                    for at in failed
                ],
            }
        )
    return rows


def _private_peaks(events: np.ndarray, change: np.ndarray) -> dict[int, int]:
    """Of each private pool that segments are of, the most bytes reserved. `change`: by each event."""
    at = np.flatnonzero(change)
    at = at[events["thread"][at] > 0]  # of a segment, the number of its pool
    pools = events["thread"][at]
    return {int(pool): int(np.cumsum(change[at[pools == pool]]).max()) for pool in np.unique(pools)}


def _passes(events: np.ndarray, objects: Objects) -> list[dict[str, Any]]:
    """One row per pass. An allocation belongs to the pass that its thread is in (the innermost); one by
    another thread to the one pass that runs then, and to none when there are several."""
    begins = where_kind(events, EventKind.kPassBegin)
    if not len(begins):
        return []
    ends = {int(events["object"][at]): int(at) for at in where_kind(events, EventKind.kPassEnd)}
    size, allocating, freeing = objects.size, objects.thread, objects.free_thread
    spans = [(int(at), ends.get(int(events["object"][at]), len(events))) for at in begins]
    owner = np.full(len(objects), -1)  # row of the pass
    running = np.zeros(len(events) + 1, np.int64)
    for row, (begin, end) in enumerate(spans):
        first, last = np.searchsorted(objects.born, (begin, end))
        mine = allocating[first:last] == events["thread"][begin]
        owner[first:last][mine] = row
        running[begin] += 1
        running[end] -= 1
    alone = np.cumsum(running) == 1
    rows = []
    for row, (begin, end) in enumerate(spans):
        first, last = np.searchsorted(objects.born, (begin, end))
        part = slice(first, last)
        thread = int(events["thread"][begin])
        strangers = (owner[part] == -1) & alone[objects.born[part]]
        owner[part][strangers] = row
        own = np.flatnonzero(owner[part] == row) + first
        ended = end < len(events)
        escaping = own[objects.died[own] > end]
        change = np.zeros(end - begin + 1, np.int64)
        change[objects.born[own] - begin] = size[own]
        dead = own[objects.died[own] < end]
        change[objects.died[dead] - begin] = -size[dead]
        rows.append(
            {
                "pass": int(events["object"][begin]),
                "thread": thread,
                "ended": ended,
                "begin_ns": int(events["time"][begin]),
                "duration_ns": int(events["time"][end if ended else -1] - events["time"][begin]),
                "allocations": _count(size[own]),
                "escaping": _count(size[escaping]) if ended else None,
                "other_threads": {
                    "allocations": int((allocating[own] != thread).sum()),
                    "frees": int((freeing[dead] != thread).sum()),
                },
                "peak_bytes": int(np.cumsum(change).max()),
            }
        )
    return rows


def _lifetimes(events: np.ndarray, objects: Objects) -> list[dict[str, Any]]:
    """The classes of size and lifetime that have objects: [from, to). Without `to`: and more; without
    `from`: never freed."""
    time = events["time"]
    never = len(LIFETIME_DECADES) + 1
    counts = np.zeros((len(SIZE_DECADES) + 1) * (never + 1), np.int64)
    totals = np.zeros_like(counts)
    for part in objects.parts():
        size, freed = part.size, part.freed
        lasted = np.zeros(len(size), np.int64)
        lasted[freed] = time[part.died[freed]].astype(np.int64) - time[part.born[freed]].astype(np.int64)
        row = np.searchsorted(SIZE_DECADES, size, side="right")
        column = np.where(freed, np.searchsorted(LIFETIME_DECADES, lasted, side="right"), never)
        number = row * (never + 1) + column
        counts += np.bincount(number, minlength=len(counts))
        np.add.at(totals, number, size)
    result = []
    for number_of_class in np.flatnonzero(counts).tolist():
        size_class, lifetime_class = divmod(number_of_class, never + 1)
        size_from, size_to = _class(SIZE_DECADES, size_class)
        from_ns, to_ns = (None, None) if lifetime_class == never else _class(LIFETIME_DECADES, lifetime_class)
        result.append(
            {
                "size_from": size_from,
                "size_to": size_to,
                "lifetime_from_ns": from_ns,
                "lifetime_to_ns": to_ns,
                "count": int(counts[number_of_class]),
                "bytes": int(totals[number_of_class]),
            }
        )
    return result


def _class(decades: list[int], index: int) -> tuple[int, int | None]:
    return (decades[index - 1] if index else 0), (decades[index] if index < len(decades) else None)


_OPERATORS = ("operators", "outermost_operators", "chains")


def _operators(trace: Trace, objects: Objects, top: int) -> dict[str, Any]:
    """Bytes by innermost operator, by outermost operator, and by whole chain; the largest first. Where a stack has no
    operator, its frame of that end stands for it; PyTorch's own stacks are named by their places."""
    sites, counts, total = _by_site(objects)
    by_site: dict[int, dict[str, Any]] = {}
    by_leaf: dict[str, dict[str, Any]] = {}
    by_root: dict[str, dict[str, Any]] = {}
    roots: dict[int, str] = {}
    places = Places(trace)
    for site, count, size in zip(sites.tolist(), counts.tolist(), total.tolist(), strict=True):
        operator = trace.innermost(site, FrameKind.kOperator)
        leaf = places.of(operator or site) or "(unknown)"
        root = _outermost(trace, operator or site, roots)
        for row in (by_site.setdefault(site, {}), by_leaf.setdefault(leaf, {}), by_root.setdefault(root, {})):
            row["count"] = row.get("count", 0) + count
            row["bytes"] = row.get("bytes", 0) + size
        by_site[site]["id"] = site

    def largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: (-row["bytes"], -row["count"]))[:top]

    return {
        "operators": largest([{"operator": name, **row} for name, row in by_leaf.items()]),
        "outermost_operators": largest([{"operator": name, **row} for name, row in by_root.items()]),
        "chains": [
            {
                "count": row["count"],
                "bytes": row["bytes"],
                "site": f"{row['id']:016x}",
                "chain": trace.site_chain(row["id"]) or trace.site_name(row["id"]) or "(unknown)",
            }
            for row in largest(list(by_site.values()))
        ],
    }


def _by_site(objects: Objects) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sites, and the number and bytes of each one's allocations; in parts, which takes less memory."""
    known = [np.unique(part.site) for part in objects.parts()]
    sites = np.unique(np.concatenate(known or [objects.site]))
    counts, total = np.zeros(len(sites), np.int64), np.zeros(len(sites), np.int64)
    for part in objects.parts():
        which = np.searchsorted(sites, part.site)
        counts += np.bincount(which, minlength=len(sites))
        np.add.at(total, which, part.size)
    return sites, counts, total


def _outermost(trace: Trace, site: int, known: dict[int, str]) -> str:
    """Of the chain of an operator the outermost operator, else the outermost frame. `known`: the sites that were asked
    for, and those on their way."""
    way = []
    name = "(unknown)"
    is_operator = trace.site_kind(site) == FrameKind.kOperator
    while site not in known and (parent := trace.site_parent(site)) is not None:
        way.append(site)
        name = trace.site_name(site) or name
        site = trace.innermost(parent, FrameKind.kOperator) if is_operator else parent
    if known.get(site, "(unknown)") != "(unknown)":
        name = known[site]
    for each in way:
        known[each] = name
    return name


def load_of(events: np.ndarray, lives: Lives, points: int) -> dict[str, dict[str, Any]]:
    """The peak, and the curve: the most bytes live in each of `points` equal stretches of time, from the first pass or
    allocation."""
    begin = end = 0
    begins = [0]  # of the stretches, by their events
    if len(lives):
        first = int(lives.born[0])
        passes = where_kind(events[:first], EventKind.kPassBegin)
        begin, end = int(events["time"][passes[0] if len(passes) else first]), int(events["time"][-1])
        begins += [event_at(events, time) for time in np.linspace(begin, end, points + 1)[1:-1]]
    load = lives.load(begins)
    peak, curve = load["peak"], load["most"]
    if begin == end and len(lives):  # all at once: for a nanosecond
        curve = [load["held"]["bytes"]] * points
    return {
        "peak": {
            "bytes": load["held"]["bytes"],
            "objects": load["held"]["count"],
            "event": peak,
            "time_ns": None if peak is None else int(events["time"][peak]),
        },
        "curve": {
            "begin_ns": begin,
            "step_ns": ((end - begin) or 1) / points if len(lives) else 0.0,
            "bytes": curve if len(lives) else [],
        },
    }


def _graph(summary: dict[str, Any]) -> dict[str, Any] | None:
    """What the exported graph shows next to what really happened (MemoMalloc, table 3.1), for one pass."""
    try:
        shown = {name: int(summary["meta"][f"graph_{name}"]) for name in ("allocations", "bytes")}
    except (KeyError, ValueError):
        return None
    one = summary["passes"][0]["allocations"] if summary["passes"] else summary["allocations"]
    really = {"allocations": one["count"], "bytes": one["bytes"]}
    return {
        name: {
            "graph": shown[name],
            "recorded": really[name],
            "ratio": shown[name] / really[name] if really[name] else None,
        }
        for name in shown
    }
