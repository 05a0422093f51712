# SPDX-License-Identifier: Apache-2.0
"""Where a simulated policy puts the objects of a trace, in which segments, as a map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memoir import _core
from memoir._core import Trace, Workload
from memoir.views.page.addresses import Segments, largest_hole
from memoir.views.page.objects import ObjectSet
from memoir.views.page.panels import Curve, Map, Mark

_NOWHERE = np.uint64(2**64 - 1)


def placed_map(
    trace: Trace,
    device: int,
    policy: str,
    objects: ObjectSet,
    *,
    name: str,
    cap: int | None = None,
    recorded: str = "",
    held: str = "held",
    workload: Workload | None = None,
) -> Map:
    """`objects`: objects_of(trace) or of this device, whose order is that of the trace. `held`: what the curve of what the
    policy held is called. `workload`: of that trace and device, up to a request that failed. Raises Error as
    _core.simulate does."""
    workload = workload or Workload(trace, device)
    places = _core.placements(workload, policy, cap, recorded)
    born = places["born"].astype(np.int64)
    order = np.argsort(born, kind="stable")
    at = np.searchsorted(born[order], objects.born)
    at = np.minimum(at, max(len(order) - 1, 0))
    which = order[at]
    found = born[which] == objects.born
    offset = places["offset"][which]
    placed = found & (offset != _NOWHERE)
    marks = []
    stopped = len(places["event"]) < workload.operations and len(places["event"]) > 0
    if stopped and (offset == _NOWHERE).any():
        failed = int(objects.born[found & (offset == _NOWHERE)].min())
        marks = [Mark(failed, "failed", "out of memory")]
    segments = Segments(joined=bool(places["segments_are_mapped"][0]))
    bases = _bases(places, which[placed])
    space = np.zeros(len(offset), np.uint64)
    space[placed] = [bases[one] for one in places["space"][which[placed]].tolist()]
    columns = ("segment_space", "segment_offset", "segment_size", "segment_born", "segment_died")
    for at_space, begin, length, since, until in zip(
        *(places[name].tolist() for name in columns), strict=True
    ):
        if at_space in bases:
            drawn = (begin + bases[at_space]) % 2**64
            segments.add(drawn, length, min(since, objects.ticks), min(until, objects.ticks))
    curve = Curve(held, "held", places["event"].astype(np.int64), places["reserved"].astype(np.int64))
    lines = [] if cap is None else [("cap", cap)]
    return Map(
        name, offset + space, placed=placed, segments=segments, curves=[curve], marks=marks, lines=lines
    )


def _bases(places: dict[str, np.ndarray], which: np.ndarray) -> dict[int, int]:
    """By space, what to add to its offsets (modulo 2^64): heaps with addresses of their own (streams, pools) are drawn one
    above the other. `which`: the objects that are drawn."""
    bases: dict[int, int] = {}
    base = 0
    spaces = places["space"][which]
    for one in np.unique(spaces).tolist():
        mine = which[spaces == one]
        held = places["segment_space"] == one
        low = np.concatenate([places["offset"][mine], places["segment_offset"][held]])
        size = np.concatenate([places["size"][mine], places["segment_size"][held]])
        first = int(low.min())
        bases[one] = (base - first) % 2**64
        base += int((low + size).max()) - first
        base += base // 64
    return bases


@dataclass(frozen=True)
class Room:
    """What an allocator held and what was left in it, at the moment when it held most. Bytes."""

    tick: int
    held: int
    live: int
    largest: int  # the largest free stretch
    free: int


def room_of(shown: Map, objects: ObjectSet) -> Room | None:
    """Of the moments when most was held, the one with the most bytes live. None where a map has no segments."""
    segments = shown.segments
    if not len(segments) or not len(objects):
        return None
    placed = np.ones(len(objects), bool) if shown.placed is None else shown.placed
    born, died = np.array(segments.born), np.array(segments.died)
    size = np.array(segments.size, np.int64)
    held = _level(born, died, size, objects.ticks)
    live = _level(objects.born[placed], objects.died[placed], objects.size[placed], objects.ticks)
    most = np.flatnonzero(held == held.max())
    tick = int(most[live[most].argmax()])
    then = segments.at(tick)
    alive = objects.at(tick) & placed
    begin = np.asarray(shown.addresses, np.uint64)[alive]
    largest, free = largest_hole(then, begin, objects.size[alive].astype(np.uint64))
    return Room(tick, int(held[tick]), int(live[tick]), largest, free)


def _level(born: np.ndarray, died: np.ndarray, size: np.ndarray, ticks: int) -> np.ndarray:
    """Bytes by tick, of what lives from `born` to `died`."""
    change = np.zeros(ticks + 2, np.int64)
    np.add.at(change, np.minimum(born, ticks), size)
    np.add.at(change, np.minimum(died, ticks + 1), -size)
    return np.cumsum(change)[: max(ticks, 1)]
