# SPDX-License-Identifier: Apache-2.0
"""Lifetime profiles: how long the sampled objects of programs lived, by the stack that allocated them.

lifetimes = memoir.Lifetimes.open("server.lifetimes")
worst = lifetimes.contexts["estimates"]["bytes"].sum(axis=1).argmax()
lifetimes.stack(worst), lifetimes.quantile(worst, 0.95), lifetimes.share_freed(worst)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from memoir._core import Error, LifetimeProfile, lifetime_buckets
from memoir.base.files import read_regular, write_output
from memoir.base.kinds import check_begins_like

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"\x89memoirL"
FREED, CENSORED = 0, 1  # what became of an object; censored: alive when its run ended
MILLISECONDS, BYTES = 0, 1  # the clock of a lifetime; bytes: that the program allocated meanwhile
CUT = 1  # a flag of a context: frames are missing
NEVER_FREED = 1  # a flag of a pair
ONE_OBJECT = 1 << 16  # estimates of objects, and weights, are in units of 1 / ONE_OBJECT
NO_MODULE = 2**32 - 1

_ESTIMATE = numpy.dtype([("samples", "<u8"), ("objects", "<u8"), ("bytes", "<u8")])
_TALLY = numpy.dtype(
    [("count", "<u8"), ("least", "<u8"), ("most", "<u8"), ("sum", "<u8", (2,)), ("squares", "<u8", (2,))]
)
# docs/reference/formats-lifetimes.md says what each field means.
RECORDS = {
    "modules": numpy.dtype(
        [("path", "<u4", (2,)), ("id_size", "<u4"), ("reserved", "<u4"), ("id", "u1", (32,))]
    ),
    "frames": numpy.dtype([("offset", "<u8"), ("module", "<u4"), ("name", "<u4", (2,)), ("reserved", "<u4")]),
    "stacks": numpy.dtype("<u4"),
    "contexts": numpy.dtype(
        [
            ("first", "<u4"),
            ("frames", "<u4"),
            ("flags", "<u4"),
            ("reserved", "<u4"),
            ("height", "<u8"),
            ("least_size", "<u8"),
            ("most_size", "<u8"),
            ("freed_elsewhere", "<u8"),
            ("estimates", _ESTIMATE, (2,)),  # by fate
            ("tallies", _TALLY, (2, 2)),  # by fate and clock
        ]
    ),
    "cells": numpy.dtype(
        [
            ("context", "<u4"),
            ("bucket", "<u2"),
            ("clock", "u1"),
            ("fate", "u1"),
            ("estimate", _ESTIMATE),
        ]
    ),
    "runs": numpy.dtype(
        [
            ("id", "<u8", (2,)),
            ("start", "<u8"),
            ("milliseconds", "<u8"),
            ("allocated", "<u8"),
            ("every", "<u8"),
            ("samples", "<u8"),
            ("lost", "<u8"),
            ("missed_frees", "<u8"),
            ("priority", "<f8"),
            ("program", "<u4", (2,)),
            ("process", "<u4"),
            ("threads", "<u4"),
            ("pairs", "<u4"),
            ("points", "<u4"),
        ]
    ),
    "pairs": numpy.dtype(
        [
            ("context", "<u4"),
            ("flags", "<u4"),
            ("allocated_by", "<u4"),
            ("freed_by", "<u4"),
            ("size", "<u8"),
            ("weight", "<u8"),
            ("begin", "<u8"),
            ("end", "<u8"),
            ("begin_clock", "<u8"),
            ("end_clock", "<u8"),
            ("priority", "<u8"),
        ]
    ),
    "points": numpy.dtype([("time", "<u8"), ("clock", "<u8"), ("live", "<u8"), ("decayed", "<u8")]),
    "totals": numpy.dtype(
        [
            ("runs", "<u8"),
            ("samples", "<u8"),
            ("lost", "<u8"),
            ("missed_frees", "<u8"),
            ("milliseconds", "<u8"),
            ("allocated", "<u8"),
            ("most_pairs", "<u4"),
            ("most_runs", "<u4"),
        ]
    ),
}


class Lifetimes:
    """One lifetime profile. Its arrays are read-only views of the records of its file; nothing changes it."""

    def __init__(self, profile: LifetimeProfile):
        self.profile = profile

    @classmethod
    def open(cls, path: str | Path) -> Lifetimes:
        """Reads and checks a .lifetimes file. Raises memoir.Error when it is none."""
        try:
            content = read_regular(path)
        except OSError as error:
            raise Error(f"{path}: cannot be read: {error.strerror}") from None
        check_begins_like(path, content, "a lifetime profile")
        return cls.from_bytes(content, str(path))

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "<memory>") -> Lifetimes:
        """The same over the bytes of a file; `name` is for messages."""
        return cls(LifetimeProfile.from_bytes(content, name))

    @classmethod
    def merge(cls, profiles: Iterable[Lifetimes], names: Iterable[str] | None = None) -> Lifetimes:
        """All of them as one: the same, whatever their order. Raises memoir.Error when a run is in two of them."""
        parts = [each.profile for each in profiles]
        called = list(names) if names is not None else [f"profile {i}" for i in range(len(parts))]
        return cls(LifetimeProfile.merge(parts, called))

    def to_bytes(self) -> bytes:
        """The bytes of a .lifetimes file."""
        return self.profile.to_bytes()

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """All or nothing. Raises memoir.Error when the file exists, unless `force`."""
        write_output(Path(path), self.to_bytes(), force, private=True)  # it holds command lines

    def _records(self, section: str) -> NDArray[Any]:
        return self.profile.records(section).view(RECORDS[section])

    @cached_property
    def modules(self) -> NDArray[numpy.void]:
        return self._records("modules")

    @cached_property
    def frames(self) -> NDArray[numpy.void]:
        return self._records("frames")

    @cached_property
    def stacks(self) -> NDArray[numpy.uint32]:
        return self._records("stacks")

    @cached_property
    def contexts(self) -> NDArray[numpy.void]:
        return self._records("contexts")

    @cached_property
    def cells(self) -> NDArray[numpy.void]:
        return self._records("cells")

    @cached_property
    def runs(self) -> NDArray[numpy.void]:
        return self._records("runs")

    @cached_property
    def pairs(self) -> NDArray[numpy.void]:
        """Of all runs, in their order; runs["pairs"] says how many belong to each."""
        return self._records("pairs")

    @cached_property
    def points(self) -> NDArray[numpy.void]:
        return self._records("points")

    @cached_property
    def totals(self) -> dict[str, int]:
        row = self._records("totals")[0]
        return {name: int(row[name]) for name in RECORDS["totals"].names or ()}

    def __len__(self) -> int:
        return len(self.contexts)

    # --- words ---

    def _word(self, place: NDArray[numpy.uint32]) -> str:
        return self.profile.word(int(place[0]), int(place[1]))

    def module_path(self, module: int) -> str:
        return self._word(self.modules[module]["path"])

    def build_id(self, module: int) -> str:
        """In hexadecimal; '' when it has none."""
        row = self.modules[module]
        return bytes(row["id"][: row["id_size"]]).hex()

    def program(self, run: int) -> str:
        return self._word(self.runs[run]["program"])

    def frame_names(self, frame: int) -> list[str]:
        """What a return address is in: inlined functions first; [] when nobody looked it up."""
        text = self._word(self.frames[frame]["name"])
        return text.split("\n") if text else []

    def frame_label(self, frame: int) -> str:
        """Its names, or module+offset."""
        names = self.frame_names(frame)
        if names:
            return " < ".join(names)
        row = self.frames[frame]
        if row["module"] == NO_MODULE:
            return "[unknown]"
        return f"{Path(self.module_path(int(row['module']))).name}+{int(row['offset']):#x}"

    def stack_frames(self, context: int) -> NDArray[numpy.uint32]:
        """Numbers of frames, innermost first."""
        row = self.contexts[context]
        first = int(row["first"])
        return self.stacks[first : first + int(row["frames"])]

    def stack(self, context: int) -> list[str]:
        """Labels of its frames, innermost first."""
        return [self.frame_label(int(frame)) for frame in self.stack_frames(context)]

    # --- figures ---

    def objects(self, fate: int | None = None) -> NDArray[numpy.float64]:
        """Estimated objects of each context: freed, censored, or (None) both."""
        each = self.contexts["estimates"]["objects"].astype(numpy.float64) / ONE_OBJECT
        return each.sum(axis=1) if fate is None else each[:, fate]

    def bytes(self, fate: int | None = None) -> NDArray[numpy.float64]:
        """Estimated bytes of each context."""
        each = self.contexts["estimates"]["bytes"].astype(numpy.float64)
        return each.sum(axis=1) if fate is None else each[:, fate]

    def moments(self, clock: int = MILLISECONDS, fate: int = FREED) -> dict[str, NDArray[numpy.float64]]:
        """The tallies of all contexts: count, least, most, mean, deviation. NaN where nothing was sampled."""
        tallies = self.contexts["tallies"][:, fate, clock]
        count = tallies["count"].astype(numpy.float64)
        sums = {name: _wide(tallies[name]) for name in ("sum", "squares")}
        with numpy.errstate(invalid="ignore", divide="ignore"):
            mean = sums["sum"] / count
            deviation = numpy.sqrt(numpy.maximum(sums["squares"] / count - mean**2, 0))
        return {
            "count": count,
            "least": tallies["least"].astype(numpy.float64),
            "most": tallies["most"].astype(numpy.float64),
            "mean": mean,
            "deviation": deviation,
        }

    def histogram(
        self,
        context: int | None = None,
        clock: int = MILLISECONDS,
        fate: int = FREED,
        weight: str = "objects",
    ) -> NDArray[numpy.float64]:
        """One number for each of memoir.lifetimes.bucket_begins(): samples, objects or bytes of a context, or of all."""
        cells = self.cells if context is None else self.cells[self._cells_of(context)]
        cells = cells[(cells["clock"] == clock) & (cells["fate"] == fate)]
        amounts = cells["estimate"][weight].astype(numpy.float64)
        if weight == "objects":
            amounts /= ONE_OBJECT
        return numpy.bincount(cells["bucket"], amounts, minlength=len(bucket_begins())).astype(numpy.float64)

    def _cells_of(self, context: int) -> slice:
        begin, end = numpy.searchsorted(self.cells["context"], [context, context + 1])
        return slice(int(begin), int(end))

    def quantile(self, context: int, share: float, clock: int = MILLISECONDS) -> float:
        """A lifetime that this share of the context's objects does not exceed, to the next bucket's begin.

        Censored objects count as living on (Kaplan and Meier's estimate, by buckets); math.inf where too many do.
        """
        freed = self.histogram(context, clock, FREED)
        censored = self.histogram(context, clock, CENSORED)
        at_risk = numpy.cumsum((freed + censored)[::-1])[::-1]
        with numpy.errstate(invalid="ignore", divide="ignore"):
            steps = numpy.where(at_risk > 0, 1 - freed / at_risk, 1.0)
        gone = 1 - numpy.cumprod(steps)
        # Sums of shares come out a little below one.
        reached = numpy.flatnonzero((gone >= share - 1e-12) & (freed > 0))
        if len(reached) == 0:
            return float("inf")
        begins = bucket_begins()
        return float(begins[min(int(reached[0]) + 1, len(begins) - 1)])

    def share_freed(self, context: int) -> float:
        """Of its estimated objects."""
        freed, censored = self.objects(FREED)[context], self.objects(CENSORED)[context]
        return float(freed / (freed + censored)) if freed + censored else 0.0

    def run_slices(self) -> list[tuple[slice, slice]]:
        """For each run, where its pairs and its points lie."""
        slices = []
        pair = point = 0
        for run in self.runs:
            pairs, points = int(run["pairs"]), int(run["points"])
            slices.append((slice(pair, pair + pairs), slice(point, point + points)))
            pair, point = pair + pairs, point + points
        return slices


def bucket_begins() -> NDArray[numpy.uint64]:
    """Where each bucket of the histograms begins, in ms or bytes."""
    return lifetime_buckets()


def _wide(halves: NDArray[numpy.uint64]) -> NDArray[numpy.float64]:
    return halves[..., 0].astype(numpy.float64) + halves[..., 1].astype(numpy.float64) * 2.0**64
