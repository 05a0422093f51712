# SPDX-License-Identifier: Apache-2.0
"""Objects as a page takes them: columns, one element per object, in order of birth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from memoir._core import EventKind, Trace
from memoir.views.page.sites import SiteTree, sites_of
from memoir.views.trace_objects import Objects

LIFETIMES = (
    "freed before anything else happened",
    "within its pass",
    "across passes",
    "never freed",
    "from before the recording",
)
_TEMPORARY, _WITHIN, _ACROSS, _NEVER, _BEFORE = range(5)


@dataclass
class ObjectSet:
    """Objects of one trace, plan or simulation. Lifetimes are half-open, in ticks from 0 to `ticks`; one that is never
    freed dies at `ticks`. Sizes in bytes."""

    born: np.ndarray
    died: np.ndarray
    size: np.ndarray
    ticks: int
    unit: str  # what a tick is called: "event", "step", "tick"
    sites: SiteTree = field(default_factory=SiteTree)
    #: further columns by name: site, thread, stream, free_thread (+ 1), pass (+ 1), lifetime, predicted, number; count and
    #: bytes, where one element stands for several objects
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    count_unit: int = 1  # columns["count"] is in units of one part of so many of an object
    time: np.ndarray | None = None  # nanoseconds at tick 0, 1, ...: never going back
    open_ended: bool = True  # what dies at `ticks` was never freed, as far as is known
    lifetimes: tuple[str, ...] = ()  # the names of the classes in columns["lifetime"]
    predictions: tuple[str, ...] = ()  # and in columns["predicted"]: predicted against true lifetime
    passes: list[dict[str, Any]] = field(default_factory=list)  # name, begin, end: ticks

    def __len__(self) -> int:
        return len(self.born)

    @property
    def total(self) -> int:
        """Objects that these elements stand for."""
        count = self.columns.get("count")
        return len(self) if count is None else round(int(count.sum()) / self.count_unit)

    def live(self) -> tuple[np.ndarray, np.ndarray]:
        """(ticks at which something changes, bytes live from each on)."""
        at = np.concatenate([self.born, self.died])
        change = np.concatenate([self.size, -self.size])
        ticks, which = np.unique(at, return_inverse=True)
        sums = np.zeros(len(ticks), np.int64)
        np.add.at(sums, which, change)
        return ticks, np.cumsum(sums)

    def peak(self) -> tuple[int, int]:
        """(bytes, the first tick with so many live)."""
        if not len(self):
            return 0, 0
        ticks, live = self.live()
        at = int(live.argmax())
        return int(live[at]), int(ticks[at])

    def only(self, which: np.ndarray) -> ObjectSet:
        """The same with these objects alone."""
        columns = {name: values[which] for name, values in self.columns.items()}
        return replace(
            self, born=self.born[which], died=self.died[which], size=self.size[which], columns=columns
        )

    def until(self, ticks: int) -> ObjectSet:
        """What there was before that tick."""
        early = self.only(self.born < ticks)
        time = None if self.time is None else self.time[: ticks + 1]
        passes = [one | {"end": min(one["end"], ticks)} for one in self.passes if one["begin"] < ticks]
        return replace(early, died=np.minimum(early.died, ticks), ticks=ticks, time=time, passes=passes)

    def at(self, tick: int) -> np.ndarray:
        """Which objects live then."""
        return (self.born <= tick) & (self.died > tick)


def objects_of(trace: Trace, device: int | None = None) -> ObjectSet:
    """What a trace says of one device, or of all; a tick is an event of the trace."""
    events = trace.events
    found = Objects.of(trace)
    size = found.size
    mine = np.flatnonzero(size > 0)
    if device is not None:
        mine = mine[events["device"][found.born[mine]] == device]
    index = np.int32 if len(events) < 2**31 else np.int64
    born: np.ndarray = found.born[mine].astype(index)
    died: np.ndarray = np.minimum(found.died[mine], len(events)).astype(index)
    tree, site = sites_of(trace, found.site[mine])
    columns = {"thread": found.thread[mine], "free_thread": found.free_thread[mine] + 1}
    if tree.frames != ["(unknown)"]:
        columns["site"] = site
    else:
        tree = SiteTree()
    columns["stream"] = events["stream"][born].astype(np.int64)
    passes = _passes(events)
    begins = np.array([one["begin"] for one in passes], np.int64)
    ends = np.array([one["end"] for one in passes], np.int64)
    if passes:
        which = np.searchsorted(begins, born, side="right") - 1
        inside = (which >= 0) & (born < ends[np.maximum(which, 0)])
        columns["pass"] = np.where(inside, which + 1, 0)
    else:
        inside, which = np.zeros(len(born), bool), np.zeros(len(born), np.int64)
    time = events["time"].astype(np.int64)
    lifetime = np.full(len(born), _ACROSS)
    if passes:
        lifetime[inside & (died <= ends[np.maximum(which, 0)])] = _WITHIN
    lifetime[died - born == 1] = _TEMPORARY
    lifetime[died == len(events)] = _NEVER
    has_segments = bool((events["kind"] == EventKind.kSegmentAllocate).any())
    if has_segments and len(time):
        lifetime[time[born] == 0] = _BEFORE
    columns["lifetime"] = lifetime
    names: tuple[str, ...] = LIFETIMES
    if not passes:
        names = (*LIFETIMES[:_ACROSS], "freed later", *LIFETIMES[_ACROSS + 1 :])
    return ObjectSet(
        born=born,
        died=died,
        size=size[mine],
        ticks=len(events),
        unit="event",
        sites=tree,
        columns=columns,
        time=np.append(time, time[-1:] if len(time) else 0),
        lifetimes=names,
        passes=passes,
    )


def _passes(events: np.ndarray) -> list[dict[str, Any]]:
    """Passes that follow one another; one inside another is left out."""
    ends = {int(events["object"][at]): int(at) for at in np.flatnonzero(events["kind"] == EventKind.kPassEnd)}
    passes: list[dict[str, Any]] = []
    for at in np.flatnonzero(events["kind"] == EventKind.kPassBegin).tolist():
        number = int(events["object"][at])
        end = ends.get(number, len(events))
        if end > at and (not passes or at >= passes[-1]["end"]):
            passes.append({"name": f"pass {number}", "begin": at, "end": end})
    return passes


def recorded_addresses(trace: Trace, objects: ObjectSet) -> tuple[np.ndarray, np.ndarray]:
    """Which objects the recording has an address of, and these."""
    events = trace.events
    if "address" in (events.dtype.names or ()):  # native programs tell it with the allocation
        addresses = np.asarray(events["address"][objects.born]).astype(np.uint64)
        if addresses.any():
            return addresses > 0, addresses[addresses > 0]
    told = np.flatnonzero(events["kind"] == EventKind.kAddress)
    if not len(told) or not len(objects):
        return np.zeros(len(objects), bool), np.zeros(0, np.uint64)
    ids = events["object"][told]
    order = np.argsort(ids, kind="stable")
    mine = events["object"][objects.born]
    at = np.minimum(np.searchsorted(ids, mine, sorter=order), len(ids) - 1)
    which = told[order[at]]
    known = events["object"][which] == mine
    return known, np.asarray(events["size"][which[known]]).astype(np.uint64)
