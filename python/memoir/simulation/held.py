# SPDX-License-Identifier: Apache-2.0
"""Who held a device's memory at one event of a trace: by site, by age, and by what it keeps from going back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir._core import EventKind, Trace
from memoir.traces.places import Places

AGES = [10**n for n in range(6, 12)]  # nanoseconds: 1 ms to 100 s
_BLOCK = 512  # bytes: PyTorch's blocks are multiples
_PAGE = 2 << 20  # bytes: what expandable segments map and unmap at least


@dataclass(frozen=True)
class _Live:
    """Objects that are live, one row each."""

    size: np.ndarray  # bytes, int64
    site: np.ndarray
    born: np.ndarray  # nanoseconds; 0: before the recording
    address: np.ndarray  # -1: not recorded


def held_at(trace: Trace, device: int, event: int, top: int = 20) -> dict[str, Any]:
    """Before that event: `sites` and `ages`, most bytes first, and `pins`, most kept bytes first.

    Stacks of one place (memoir.traces.places) are one row, with the `site` that holds most of it.
    A row keeps what would go back to the device without its objects: the free bytes of a segment (of 2 MiB pages,
    where segments expand) are shared out among the objects that lie in it. No `pins` where no addresses were recorded.
    """
    events = trace.events[:event]
    times = trace.events["time"]
    now = int(times[min(event, len(times) - 1)]) if len(times) else 0  # at the end: when the last event was
    live = _live(events, device)
    kept = _kept(events, device, live)
    sites, of_site = np.unique(live.site, return_inverse=True)
    bytes_of = np.bincount(of_site, weights=live.size, minlength=len(sites))
    places = Places(trace)
    names, of_place = np.unique([places.of(site) for site in sites.tolist()], return_inverse=True)
    which = of_place[of_site] if len(sites) else of_site
    age = now - live.born
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(names.tolist()):
        mine, stacks = which == number, np.flatnonzero(of_place == number)
        largest = int(sites[stacks[np.argmax(bytes_of[stacks])]])
        rows.append(
            {
                "place": name or "(unknown)",
                "site": trace.site_chain(largest) or "(unknown)",
                "stacks": len(stacks),
                "bytes": int(live.size[mine].sum()),
                "objects": int(mine.sum()),
                "oldest_ns": int(age[mine].max()),
                "before_recording": int((live.born[mine] == 0).sum()),
                "kept_bytes": int(kept[mine].sum()) if kept is not None else None,
            }
        )
    by_size = sorted(rows, key=lambda row: (-row["bytes"], row["place"]))
    by_kept = sorted(rows, key=lambda row: (-(row["kept_bytes"] or 0), row["place"]))
    return {
        "objects": len(live.size),
        "bytes": int(live.size.sum()),
        "sites": by_size[:top],
        "ages": _ages(live, age),
        "pins": [row for row in by_kept[:top] if row["kept_bytes"]],
    }


def _live(events: np.ndarray, device: int) -> _Live:
    born = np.flatnonzero((events["kind"] == EventKind.kAllocate) & (events["device"] == device))
    frees = events["object"][events["kind"] == EventKind.kFree]
    born = born[~np.isin(events["object"][born], frees)]
    ids = events["object"][born]
    order = np.argsort(ids)
    address = np.where(events["address"][born] > 0, events["address"][born].astype(np.int64), -1)
    told = np.flatnonzero(events["kind"] == EventKind.kAddress)
    told = told[np.isin(events["object"][told], ids)]
    address[order[np.searchsorted(ids, events["object"][told], sorter=order)]] = events["size"][told]
    return _Live(
        size=events["size"][born].astype(np.int64),
        site=events["site"][born],
        born=events["time"][born].astype(np.int64),
        address=address,
    )


def _ages(live: _Live, age: np.ndarray) -> list[dict[str, Any]]:
    """[from, to) in nanoseconds; no `to`: and older; neither: from before the recording."""
    before = len(AGES) + 1
    classes = np.where(live.born == 0, before, np.searchsorted(AGES, age, side="right"))
    rows = []
    for number in np.unique(classes).tolist():
        mine = classes == number
        rows.append(
            {
                "from_ns": None if number == before else AGES[number - 1] if number else 0,
                "to_ns": AGES[number] if number < len(AGES) else None,
                "bytes": int(live.size[mine].sum()),
                "objects": int(mine.sum()),
            }
        )
    return sorted(rows, key=lambda row: -row["bytes"])


def _kept(events: np.ndarray, device: int, live: _Live) -> np.ndarray | None:
    """Of each object: its share of what is free around it; None where nothing tells."""
    begins, ends = _pieces(events, device)
    placed = np.flatnonzero(live.address >= 0)
    if not len(begins) or not len(placed):
        return None
    at = np.searchsorted(begins, live.address[placed], side="right") - 1
    inside = (at >= 0) & (live.address[placed] < ends[at])
    placed, at = placed[inside], at[inside]
    size = -(-live.size[placed] // _BLOCK) * _BLOCK
    kept = np.zeros(len(live.size), np.int64)
    # An object may reach over several pages: it shares in each.
    last = np.searchsorted(begins, live.address[placed] + np.maximum(size, 1) - 1, side="right") - 1
    used, count = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.int64)
    spans = [
        (int(one), int(first), int(end))
        for one, first, end in zip(placed, at, np.maximum(at, last), strict=True)
    ]
    for one, first, end in spans:
        begin, length = int(live.address[one]), -(-int(live.size[one]) // _BLOCK) * _BLOCK
        for piece in range(first, end + 1):
            used[piece] += max(0, min(int(ends[piece]), begin + length) - max(int(begins[piece]), begin))
            count[piece] += 1
    free = np.maximum(ends - begins - used, 0)
    for one, first, end in spans:
        kept[one] = sum(int(free[piece] // count[piece]) for piece in range(first, end + 1))
    return kept


def _pieces(events: np.ndarray, device: int) -> tuple[np.ndarray, np.ndarray]:
    """What the allocator had, in pieces that can go back: segments, and mapped pages. Begins and ends by address."""
    calls = np.flatnonzero(
        (events["kind"] >= EventKind.kSegmentAllocate)
        & (events["kind"] <= EventKind.kSegmentUnmap)
        & (events["device"] == device)
    )
    segments: dict[int, int] = {}
    pages: set[int] = set()
    for kind, begin, size in zip(
        events["kind"][calls].tolist(),
        events["object"][calls].tolist(),
        events["size"][calls].tolist(),
        strict=True,
    ):
        if kind == EventKind.kSegmentAllocate:
            segments[begin] = size
        elif kind == EventKind.kSegmentFree:
            segments.pop(begin, None)
        elif size <= 1 << 48:  # no device has more
            touched = range(begin // _PAGE, -(-(begin + size) // _PAGE))
            (pages.update if kind == EventKind.kSegmentMap else pages.difference_update)(touched)
    pieces = sorted([*segments.items(), *((page * _PAGE, _PAGE) for page in pages)])
    begins = np.array([begin for begin, _ in pieces], np.int64)
    return begins, begins + np.array([size for _, size in pieces], np.int64)
