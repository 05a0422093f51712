# SPDX-License-Identifier: Apache-2.0
"""Everything that a report asserts, corrected together: the chance of any false statement in it stays under one level.

A report compares many things: every allocator in every group, for time, memory, faults and whatever a program prints,
then the best of each group, the ratios over all groups, and who scales. Each is a claim with a p-value. All of them
are corrected at once by Holm's method; half of the level goes to what a report begins with (the ratios over all
groups, their equality, scaling), the other half to single groups, so that a large grid does not drown its own summary.

    family = Family()
    family.add(("wall", group, "jemalloc"), 0.0004)
    family.add(("wall", "overall", "jemalloc"), 0.0001, headline=True)
    family.corrected()[("wall", "overall", "jemalloc")]
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from memoir.bench import statistics
from memoir.bench.statistics import Comparison


class Family:
    """The claims of one report. Add all of them before the first is corrected."""

    def __init__(self) -> None:
        self._p: dict[Hashable, float] = {}
        self._headlines: set[Hashable] = set()

    def add(self, key: Hashable, p_value: float, headline: bool = False) -> None:
        self._p[key] = p_value
        if headline:
            self._headlines.add(key)

    def __len__(self) -> int:
        return len(self._p)

    def corrected(self) -> dict[Hashable, float]:
        """Each claim's p-value times what its number costs."""
        few, many = len(self._headlines), len(self._p) - len(self._headlines)
        weights = [
            1.0 if not (few and many) else 0.5 / (few if key in self._headlines else many) for key in self._p
        ]
        found = statistics.correct_many(list(self._p.values()), weights).tolist()
        return dict(zip(self._p, found, strict=True))

    def cost(self, key: Hashable) -> float:
        """What a p-value of this claim is at most multiplied by."""
        few, many = len(self._headlines), len(self._p) - len(self._headlines)
        if not (few and many):
            return float(len(self._p))
        return 2.0 * (few if key in self._headlines else many)


def best_of(comparisons: Sequence[Comparison], higher_is_better: bool) -> float:
    """p of "the allocator that these comparisons have as their candidate is not better than all others".

    Each comparison is of the best one that was seen with one of the others. It was chosen for being the best, so a tie
    of k allocators offers k chances to name one wrongly, each with half a two-sided p: hence k / 2 times the largest.
    """
    if any((c.interval.ratio > 1.0) != higher_is_better for c in comparisons):
        return 1.0
    return min(1.0, max(c.p_value for c in comparisons) * max(1.0, (len(comparisons) + 1) / 2.0))
