# SPDX-License-Identifier: Apache-2.0
"""From rows to statements: what each allocator did in each group of cells, and what may be said of it.

report = analyse_all(result)            every quantity, all claims corrected together
report["wall"].overall["jemalloc"]      the ratio over all groups, its interval, and the verdict
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memoir._core import Error
from memoir.bench import statistics
from memoir.bench.claims import Family, best_of
from memoir.bench.grid import Cell, Group, cell_of
from memoir.bench.results import Result
from memoir.bench.scaling import Growth, growths
from memoir.bench.statistics import Comparison
from memoir.bench.values import (
    QUANTITIES,
    Comparer,
    Values,
    groups_of,
    quantities,
    step_of,
    unit_of,
    words_of,
)

BASELINE, NO_DATA = "baseline", "no data"
NO_DIFFERENCE = "no difference shown"
UNCLEAR = "unclear"  # the interval excludes 1, but among so many comparisons that may be chance
SAME = 0.02  # the margin of "the same" where none is asked for


@dataclass(frozen=True)
class Line:
    """One allocator in one group: its own numbers, and its ratio to the baseline."""

    cell: Cell
    n: int  # runs that count
    failed: int
    mean: float
    low: float  # Student's interval of the mean
    high: float
    median: float
    minimum: float
    maximum: float
    outliers: tuple[float, ...]
    comparison: Comparison | None  # None: the baseline itself, or no data
    corrected_p: float | None
    verdict: str


@dataclass(frozen=True)
class Overall:
    """An allocator against the baseline over all groups that both finished."""

    comparison: Comparison  # geometric mean of its ratios
    groups: int  # how many those are
    corrected_p: float
    verdict: str
    same: bool  # shown to be within the margin either way
    cost: float  # what its p-values are at most multiplied by

    @property
    def interval(self) -> statistics.Interval:
        return self.comparison.interval


@dataclass(frozen=True)
class Analysis:
    """All groups for one quantity."""

    quantity: str
    unit: str
    higher_is_better: bool
    baseline: str
    method: str
    confidence: float
    groups: dict[Group, list[Line]]  # by Cell.group; lines in the order of the allocators
    winners: dict[Group, str | None]  # the allocator that beats every other one, when there is one
    overall: dict[str, Overall]
    best: str | None  # the allocator that beats every other one over all groups
    claims: int  # everything that was corrected together with these
    margin: float  # of "the same"
    warnings: tuple[str, ...]
    growths: tuple[Growth, ...] = ()  # of time: who scales better with threads and load

    def lines(self) -> list[Line]:
        return [line for lines in self.groups.values() for line in lines]


def analyse(result: Result, quantity: str = "wall", **judge: Any) -> Analysis:
    """One quantity alone, corrected for its own claims only; the options are analyse_all()'s."""
    return analyse_all(result, [quantity], **judge)[quantity]


def analyse_all(
    result: Result,
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    method: str = "paired_t",
    confidence: float = 0.95,
    same: float = SAME,
) -> dict[str, Analysis]:
    """Compares every allocator with the baseline (the first one) in every group, for every quantity (or these).

    All claims are corrected together. Runs that were not interleaved are compared unpaired: their replicates are no
    blocks. Raises memoir.Error for an unknown baseline.
    """
    known = result.allocators
    baseline = known[0] if baseline is None and known else baseline
    if baseline not in known:
        raise Error(f"baseline {baseline!r} is not among {', '.join(known)}")
    if method == "paired_t" and not result.interleaved:
        method = "welch_t"
    wanted = (quantities(result) or ["wall"]) if names is None else list(names)
    family = Family()
    drafts = [_Draft(result, name, baseline, method, confidence, same, family) for name in wanted]
    corrected = family.corrected()
    return {draft.quantity: draft.finish(corrected, family) for draft in drafts}


class _Draft:
    """One quantity before its claims are corrected."""

    def __init__(
        self,
        result: Result,
        quantity: str,
        baseline: str,
        method: str,
        confidence: float,
        same: float,
        family: Family,
    ) -> None:
        self.quantity, self._baseline, self._method, self._confidence = quantity, baseline, method, confidence
        self._same = same
        self._names = result.allocators
        metric = next((metric for metric in result.metrics if metric.name == quantity), None)
        self._higher = metric is not None and metric.higher_is_better
        self._groups = groups_of(result, quantity)
        step = step_of(result, quantity, self._groups)
        self._compare = Comparer(method, confidence, result.interleaved, step, result.session_means)
        self._failed: dict[Cell, int] = {}
        for row in result.failures:
            self._failed[cell_of(row)] = self._failed.get(cell_of(row), 0) + 1
        self._compared = {
            (group, name): self._compare.one(cells[baseline], cells[name])
            for group, cells in self._groups.items()
            for name in cells
            if name != baseline and baseline in cells
        }
        self._best = {group: self._find_best([cells]) for group, cells in self._groups.items()}
        finished = [cells for cells in self._groups.values() if cells.get(baseline)]
        self._overall = {
            name: found
            for name in self._names
            if name != baseline and (found := self._over_groups(baseline, name, finished))
        }
        self._overall_best = self._find_best(list(self._groups.values()))
        self._growths: list[Growth] = []
        if quantity == "wall":
            plain = Comparer(method, confidence, result.interleaved, 0.0, result.session_means)
            self._growths = growths(result, baseline, plain)
        self._claim(family)

    def _claim(self, family: Family) -> None:
        """One group is the whole: then what is said of it is what the report begins with, and is claimed once."""
        single = len(self._groups) == 1
        for (group, name), comparison in self._compared.items():
            if comparison is not None:
                family.add((self.quantity, group, name), comparison.p_value, headline=single)
        for group, found in self._best.items():
            if found is not None and len(found[2]) > 1:
                family.add((self.quantity, group), found[1], headline=single)
        for name, (comparison, _, differ) in self._overall.items():
            if not single:
                family.add((self.quantity, "overall", name), comparison.p_value, headline=True)
            if self.quantity in ("wall", "peak_rss") or self.quantity not in QUANTITIES:
                family.add((self.quantity, "same", name), differ, headline=True)
        if self._overall_best is not None and len(self._overall_best[2]) > 1 and not single:
            family.add((self.quantity, "best"), self._overall_best[1], headline=True)

        for growth in self._growths:
            family.add(growth.key, growth.comparison.p_value, headline=True)

    def finish(self, corrected: dict[Hashable, float], family: Family) -> Analysis:
        unit, (less, more) = unit_of(self.quantity), words_of(self.quantity)
        level = 1.0 - self._confidence
        lines: dict[Group, list[Line]] = {}
        for group, cells in self._groups.items():
            for name in sorted(cells, key=self._names.index):
                comparison = self._compared.get((group, name))
                p = corrected.get((self.quantity, group, name))
                verdict = BASELINE if name == self._baseline else NO_DATA
                if comparison is not None and p is not None:
                    verdict = verdict_of(comparison, p, less, more)
                cell = Cell(group[0], name, group[1], group[2], group[3])
                failed = self._failed.get(cell, 0)
                lines.setdefault(group, []).append(_line(cell, cells[name], failed, comparison, p, verdict))
        single = len(self._groups) == 1
        alone = next(iter(self._groups)) if single else None
        overall = {}
        for name, (comparison, count, _) in self._overall.items():
            key: Hashable = (self.quantity, alone if single else "overall", name)
            p = corrected.get(key, 1.0)
            same = corrected.get((self.quantity, "same", name), 1.0) <= level
            verdict = verdict_of(comparison, p, less, more)
            overall[name] = Overall(comparison, count, p, verdict, same, family.cost(key))
        winners = {
            group: self._winner(found, corrected, (self.quantity, group), group)
            for group, found in self._best.items()
        }
        best = (
            winners[alone]
            if alone is not None
            else self._winner(self._overall_best, corrected, (self.quantity, "best"), "overall")
        )
        return Analysis(
            quantity=self.quantity,
            unit=unit,
            higher_is_better=self._higher,
            baseline=self._baseline,
            method=self._method,
            confidence=self._confidence,
            groups=lines,
            winners=winners,
            overall=overall,
            best=best,
            claims=len(family),
            margin=self._same,
            warnings=_warnings(self._method, self._compared.values()),
            growths=tuple(replace(growth, corrected_p=corrected[growth.key]) for growth in self._growths),
        )

    def _find_best(self, groups: list[dict[str, Values]]) -> _Best | None:
        """Who looks best over these groups, and its comparisons with each other one; None where one has no data."""
        names = list(dict.fromkeys(name for cells in groups for name in cells))
        if len(names) < 2 or any(not cells.get(name) for cells in groups for name in names):
            return None  # one that failed may have been the best
        if min(value for cells in groups for values in cells.values() for value in values.values()) <= 0:
            return None
        level = {
            name: sum(float(np.mean(np.log(list(cells[name].values())))) for cells in groups)
            for name in names
        }
        best = (max if self._higher else min)(level, key=lambda name: level[name])
        found: dict[str, Comparison] = {}
        for name in names:
            if name == best:
                continue
            comparison = self._compare.over([(cells[name], cells[best]) for cells in groups])
            if comparison is None:
                return None
            found[name] = comparison
        return best, best_of(list(found.values()), self._higher), found

    def _winner(
        self, found: _Best | None, corrected: dict[Hashable, float], key: Hashable, place: Hashable
    ) -> str | None:
        """The best one, if that may be said. Of two allocators it is the same claim as the verdict of the other one."""
        if found is None:
            return None
        best, _, comparisons = found
        if any((c.interval.ratio > 1.0) != self._higher for c in comparisons.values()):
            return None
        if len(comparisons) == 1:
            other = next(iter(comparisons))
            p = corrected.get((self.quantity, place, other if best == self._baseline else best), 1.0)
        else:
            p = corrected.get(key, 1.0)
        return best if all(statistics.differs(c, p) for c in comparisons.values()) else None

    def _over_groups(
        self, baseline: str, name: str, groups: list[dict[str, Values]]
    ) -> tuple[Comparison, int, float] | None:
        """The comparison over the groups that both have, their number, and p of "not the same within the margin"."""
        usable = [
            (cells[baseline], cells[name])
            for cells in groups
            if cells.get(name) and min([*cells[baseline].values(), *cells[name].values()]) > 0
        ]
        comparison = self._compare.over(usable) if usable else None
        if comparison is None:
            return None
        return comparison, len(usable), self._compare.same_within(self._same, usable)


_Best = tuple[
    str, float, dict[str, Comparison]
]  # the best, p of "it is not", its comparisons with each other one


def widest(result: Result, **judge: Any) -> float:
    """The largest half width of all ratios of time and printed metrics: what --until watches.

    With one allocator there are no ratios, and the means' own intervals count. inf while one knows nothing.
    """
    return _widest(result, **judge)[0]


def replicates_needed(result: Result, target: float, **judge: Any) -> int:
    """About how many replicates bring the widest interval to the target."""
    width, n = _widest(result, **judge)
    return statistics.replicates_needed(statistics.Interval(1.0, 1.0 / (1.0 + width), 1.0 + width), n, target)


def _widest(result: Result, **judge: Any) -> tuple[float, int]:
    widths = []
    for a in analyse_all(result, ["wall", *(metric.name for metric in result.metrics)], **judge).values():
        lines = [line for line in a.lines() if line.n]
        ratios = [
            (line.comparison.interval.half_width, line.n) for line in lines if line.comparison is not None
        ]
        widths += ratios or [
            ((line.high - line.mean) / abs(line.mean), line.n) for line in lines if line.mean
        ]
    return max(widths, default=(math.inf, 1))


def verdict_of(comparison: Comparison, corrected_p: float, less: str, more: str) -> str:
    if comparison.interval.includes_one:
        return NO_DIFFERENCE
    if not statistics.differs(comparison, corrected_p):
        return UNCLEAR
    return less if comparison.interval.ratio < 1 else more


def _line(
    cell: Cell,
    values: Values,
    failed: int,
    comparison: Comparison | None,
    corrected_p: float | None,
    verdict: str,
) -> Line:
    array = np.array(list(values.values()), dtype=float)
    if len(array) == 0:
        nan = math.nan
        return Line(cell, 0, failed, nan, nan, nan, nan, nan, nan, (), None, None, NO_DATA)
    mean, low, high = statistics.mean_interval(array)
    far = array[statistics.outliers(array)]
    return Line(
        cell,
        len(array),
        failed,
        mean,
        low,
        high,
        float(np.median(array)),
        float(array.min()),
        float(array.max()),
        tuple(far.tolist()),
        comparison,
        corrected_p,
        verdict,
    )


def _warnings(method: str, comparisons: Iterable[Comparison | None]) -> tuple[str, ...]:
    smallest = min((comparison.n for comparison in comparisons if comparison is not None), default=None)
    warning = None if smallest is None else statistics.warning(method, smallest)
    return () if warning is None else (warning,)
