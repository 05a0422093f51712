# SPDX-License-Identifier: Apache-2.0
"""The objects of a trace as columns. A trace may have ten million events of 56 bytes each, so nothing here holds a column
of all events: who looks at all of them does so in parts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memoir._core import EventKind, Lives, Trace

PART = 1 << 14  # events, or objects, that are looked at together


@dataclass(frozen=True)
class Objects:
    """The allocations of a trace, in their order. Two columns are there; the others are made when they are asked for."""

    events: np.ndarray
    born: np.ndarray  # index of the event that allocated it
    died: np.ndarray  # index of the event that freed it; 2^32 - 1 when none did

    @staticmethod
    def of(trace: Trace, lives: Lives | None = None) -> Objects:
        """`lives`: those of the trace, where the caller has them."""
        lives = lives or Lives(trace)
        return Objects(trace.events, lives.born, lives.died)

    def __len__(self) -> int:
        return len(self.born)

    def parts(self) -> Iterator[Objects]:
        """The same, some at a time."""
        for first in range(0, len(self), PART):
            part = slice(first, first + PART)
            yield Objects(self.events, self.born[part], self.died[part])

    @property
    def freed(self) -> np.ndarray:
        """Whether each was."""
        return self.died < len(self.events)

    @property
    def size(self) -> np.ndarray:
        """Bytes."""
        return np.asarray(self.events["size"][self.born]).astype(np.int64)

    @property
    def thread(self) -> np.ndarray:
        """That allocated it."""
        return np.asarray(self.events["thread"][self.born]).astype(np.int64)

    @property
    def free_thread(self) -> np.ndarray:
        """That freed it; -1: none did."""
        freed = self.freed
        threads = np.full(len(self), -1, np.int64)
        threads[freed] = self.events["thread"][self.died[freed]]
        return threads

    @property
    def site(self) -> np.ndarray:
        return np.asarray(self.events["site"][self.born])


def parts_of(events: np.ndarray) -> Iterator[np.ndarray]:
    """The events, some at a time."""
    for first in range(0, len(events), PART):
        yield events[first : first + PART]


def where_kind(events: np.ndarray, kind: EventKind) -> np.ndarray:
    """The indices of the events of that kind."""
    found = [
        np.flatnonzero(part["kind"] == kind) + number * PART for number, part in enumerate(parts_of(events))
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def event_at(events: np.ndarray, time: float) -> int:
    """The first event that is not before that time, in nanoseconds."""
    return bisect_left(events["time"], time)
