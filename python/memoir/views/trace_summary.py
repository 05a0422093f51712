# SPDX-License-Identifier: Apache-2.0
"""A trace in numbers: what `memoir show x.trace` prints, as plain data; every key is in its --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir._core import EventKind, Trace

LIFETIME_DECADES = [10**n for n in range(3, 11)]  # nanoseconds: 1 us to 10 s
_PART = 1_000_000  # objects that are looked at together
SIZE_DECADES = [10**n for n in range(2, 10)]  # bytes: 100 B to 1 GB


@dataclass(frozen=True)
class Objects:
    """The allocations of a trace as columns, one row each, in order of allocation."""

    born: np.ndarray  # index of the event that allocated it
    died: np.ndarray  # index of the event that freed it; the number of events when none did
    size: np.ndarray  # bytes, int64
    thread: np.ndarray
    free_thread: np.ndarray  # of its free; -1 when there was none
    site: np.ndarray
    live: np.ndarray  # per event of the trace, not per object: bytes live after it, int64

    @staticmethod
    def of(events: np.ndarray) -> Objects:
        index = np.int32 if len(events) < 2**31 else np.int64
        born = np.flatnonzero(events["kind"] == EventKind.kAllocate).astype(index)
        frees = np.flatnonzero(events["kind"] == EventKind.kFree).astype(index)
        freed = _places(events["object"][born], events["object"][frees]).astype(index)
        size = events["size"][born].astype(np.int64)
        died = np.full(len(born), len(events), index)
        died[freed] = frees
        free_thread = np.full(len(born), -1, index)
        free_thread[freed] = events["thread"][frees]
        live = np.zeros(len(events), np.int64)
        live[born] = size
        live[frees] = -size[freed]
        np.cumsum(live, out=live)
        return Objects(
            born=born,
            died=died,
            size=size,
            thread=events["thread"][born].astype(index),
            free_thread=free_thread,
            site=events["site"][born],
            live=live,
        )

    def __len__(self) -> int:
        return len(self.born)


def _places(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where in `names` each of `wanted` stands."""
    if np.all(names[1:] > names[:-1]):  # as recordings number their objects
        return np.searchsorted(names, wanted)
    order = np.argsort(names, kind="stable")
    return order[np.searchsorted(names, wanted, sorter=order)]


def summarize(trace: Trace, *, points: int = 200, top: int = 20) -> dict[str, Any]:
    """The whole summary. `points`: samples of the load curve; `top`: rows of each table of operators."""
    events = trace.events
    objects = Objects.of(events)
    freed = objects.died < len(events)
    elsewhere = freed & (objects.free_thread != objects.thread)
    threads = np.unique(events["thread"][events["kind"] <= EventKind.kPassEnd])
    result = {
        "complete": trace.complete,
        "lost_bytes": trace.lost_bytes,
        "dropped": trace.dropped,
        "start_ns": trace.start,
        "duration_ns": int(events["time"][-1]) if len(events) else 0,
        "meta": {key: trace.meta(key) for key in trace.meta_keys()},
        "events": len(events),
        "threads": len(threads),
        "allocations": _count(objects, slice(None)),
        "frees": _count(objects, freed),
        "never_freed": _count(objects, ~freed),
        "freed_on_another_thread": _count(objects, elsewhere),
        "peak": _peak(events, objects),
        "devices": _devices(events, objects),
        "passes": _passes(events, objects),
        "lifetimes": _lifetimes(events, objects),
        **_operators(trace, objects, top),
        "load_curve": load_curve(events, objects, points),
    }
    result["graph"] = _graph(result)
    return result


def _count(objects: Objects, which: np.ndarray | slice) -> dict[str, Any]:
    size = objects.size[which]
    return {"count": len(size), "bytes": int(size.sum())}


def _peak(events: np.ndarray, objects: Objects) -> dict[str, Any]:
    if not len(objects):
        return {"bytes": 0, "objects": 0, "event": None, "time_ns": None}
    at = int(objects.live.argmax())
    live = (objects.born <= at) & (objects.died > at)
    return {
        "bytes": int(objects.live[at]),
        "objects": int(live.sum()),
        "event": at,
        "time_ns": int(events["time"][at]),
    }


_SEGMENTS = {  # kind -> its name, and what it does to the bytes that are reserved
    EventKind.kSegmentAllocate: ("segment_allocate", 1),
    EventKind.kSegmentFree: ("segment_free", -1),
    EventKind.kSegmentMap: ("segment_map", 1),
    EventKind.kSegmentUnmap: ("segment_unmap", -1),
}


def _devices(events: np.ndarray, objects: Objects) -> list[dict[str, Any]]:
    """One row per device, if the trace names any: streams, peaks, what its allocator asked of it."""
    on_devices = events["kind"] >= EventKind.kSegmentAllocate
    on_devices |= (events["device"] > 0) | (events["stream"] > 0)
    if not on_devices.any():
        return []
    speaks = (events["kind"] <= EventKind.kFree) | (events["kind"] >= EventKind.kSegmentAllocate)
    speaks &= events["kind"] != EventKind.kPool
    died = np.flatnonzero(objects.died < len(events))
    ids = events[events["kind"] == EventKind.kPool][["object", "size"]].tolist()
    rows = []
    for device in np.unique(events["device"][speaks]).tolist():
        mine = speaks & (events["device"] == device)
        born = events["device"][objects.born] == device
        change = np.zeros(len(events), np.int64)
        change[objects.born[born]] = objects.size[born]
        dead = died[born[died]]
        change[objects.died[dead]] = -objects.size[dead]
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
                "allocations": _count(objects, born),
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
    begins = np.flatnonzero(events["kind"] == EventKind.kPassBegin)
    ends = {int(events["object"][at]): int(at) for at in np.flatnonzero(events["kind"] == EventKind.kPassEnd)}
    spans = [(int(at), ends.get(int(events["object"][at]), len(events))) for at in begins]
    owner = np.full(len(objects), -1)  # row of the pass
    running = np.zeros(len(events) + 1, np.int64)
    for row, (begin, end) in enumerate(spans):
        first, last = np.searchsorted(objects.born, (begin, end))
        mine = objects.thread[first:last] == events["thread"][begin]
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
        change[objects.born[own] - begin] = objects.size[own]
        dead = own[objects.died[own] < end]
        change[objects.died[dead] - begin] = -objects.size[dead]
        rows.append(
            {
                "pass": int(events["object"][begin]),
                "thread": thread,
                "ended": ended,
                "begin_ns": int(events["time"][begin]),
                "duration_ns": int(events["time"][end if ended else -1] - events["time"][begin]),
                "allocations": _count(objects, own),
                "escaping": _count(objects, escaping) if ended else None,
                "other_threads": {
                    "allocations": int((objects.thread[own] != thread).sum()),
                    "frees": int((objects.free_thread[dead] != thread).sum()),
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
    for first in range(0, len(objects), _PART):
        size = objects.size[first : first + _PART]
        born, died = objects.born[first : first + _PART], objects.died[first : first + _PART]
        freed = died < len(events)
        lasted = np.zeros(len(size), np.int64)
        lasted[freed] = time[died[freed]].astype(np.int64) - time[born[freed]].astype(np.int64)
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


def _operators(trace: Trace, objects: Objects, top: int) -> dict[str, Any]:
    """Bytes by innermost operator, by outermost operator, and by whole chain; the largest first."""
    sites, counts, total = _by_site(objects)
    by_site: dict[int, dict[str, Any]] = {}
    by_leaf: dict[str, dict[str, Any]] = {}
    by_root: dict[str, dict[str, Any]] = {}
    roots: dict[int, str] = {}
    for site, count, size in zip(sites.tolist(), counts.tolist(), total.tolist(), strict=True):
        leaf = trace.site_name(site) or "(unknown)"
        root = _outermost(trace, site, roots)
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
    sites = np.unique(np.concatenate([np.unique(part) for part in _parts(objects.site)] or [objects.site]))
    counts, total = np.zeros(len(sites), np.int64), np.zeros(len(sites), np.int64)
    for part, size in zip(_parts(objects.site), _parts(objects.size), strict=True):
        which = np.searchsorted(sites, part)
        counts += np.bincount(which, minlength=len(sites))
        np.add.at(total, which, size)
    return sites, counts, total


def _parts(column: np.ndarray) -> list[np.ndarray]:
    return [column[first : first + _PART] for first in range(0, len(column), _PART)]


def _outermost(trace: Trace, site: int, known: dict[int, str]) -> str:
    """`known`: the sites that were asked for, and those on their way."""
    way = []
    name = "(unknown)"
    while site not in known and (parent := trace.site_parent(site)) is not None:
        way.append(site)
        name = trace.site_name(site) or name
        site = parent
    if known.get(site, "(unknown)") != "(unknown)":
        name = known[site]
    for each in way:
        known[each] = name
    return name


def load_curve(events: np.ndarray, objects: Objects, points: int) -> dict[str, Any]:
    """The most bytes live in each of `points` equal stretches of time, from the first pass or allocation."""
    telling = np.flatnonzero(
        (events["kind"] == EventKind.kAllocate) | (events["kind"] == EventKind.kPassBegin)
    )
    if not len(objects):
        return {"begin_ns": 0, "step_ns": 0.0, "bytes": []}
    begin, end = int(events["time"][telling[0]]), int(events["time"][-1])
    if begin == end:  # all at once: for a nanosecond
        return {"begin_ns": begin, "step_ns": 1 / points, "bytes": [int(objects.live.max())] * points}
    edges = np.searchsorted(events["time"], np.linspace(begin, end, points + 1)[1:-1])
    curve, before = [], 0
    for part in np.split(objects.live, edges):
        curve.append(int(max(before, part.max())) if len(part) else int(before))
        before = part[-1] if len(part) else before
    return {"begin_ns": begin, "step_ns": (end - begin) / points, "bytes": curve}


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
