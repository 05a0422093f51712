# SPDX-License-Identifier: Apache-2.0
"""Who is live when, as stretches of time between one birth or death and the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memoir._core import Problem


@dataclass(frozen=True)
class Sections:
    """Section k is [ticks[k], ticks[k + 1]); in it `loads[k]` bytes are live."""

    ticks: np.ndarray  # uint64, ascending
    first: np.ndarray  # of each buffer, its first section
    last: np.ndarray  # and the one after its last
    loads: np.ndarray  # int64

    @staticmethod
    def of(problem: Problem, also: Sequence[int] = ()) -> Sections:
        """With sections beginning at the ticks of `also` too."""
        ticks = np.unique(np.concatenate([problem.lower, problem.upper, np.array(also, np.uint64)]))
        first, last = np.searchsorted(ticks, problem.lower), np.searchsorted(ticks, problem.upper)
        steps = np.zeros(len(ticks) + 1, np.int64)
        np.add.at(steps, first, problem.size.astype(np.int64))
        np.add.at(steps, last, -problem.size.astype(np.int64))
        return Sections(ticks, first, last, np.cumsum(steps)[: max(len(ticks) - 1, 0)])

    def live(self, section: int) -> np.ndarray:
        """The buffers that live in it."""
        return np.flatnonzero((self.first <= section) & (section < self.last))

    def within(self, lower: int, upper: int) -> tuple[int, int]:
        """The sections [first, last) that lie wholly within [lower, upper)."""
        first = int(np.searchsorted(self.ticks, np.uint64(lower), side="left"))
        last = int(np.searchsorted(self.ticks, np.uint64(upper), side="right")) - 1
        return first, max(last, first)

    def over(self, capacity: int) -> np.ndarray:
        """The sections in which more is live."""
        return np.flatnonzero(self.loads > capacity)

    def peaks(self, capacity: int) -> Iterator[int]:
        """Of those, each that no neighbour's live buffers hold all of: what begins in it, and what ends at its end."""
        births, deaths = set(self.first.tolist()), set(self.last.tolist())
        grown: int | None = None  # the last section in which something was born, with no death since
        for section in range(len(self.loads)):
            if section in births:
                grown = section
            if section + 1 in deaths and grown is not None:
                if self.loads[section] > capacity:
                    yield section
                grown = None
