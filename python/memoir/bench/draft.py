# SPDX-License-Identifier: Apache-2.0
"""One quantity, compared but not yet judged: what it claims is corrected together with what the others claim."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np

from memoir.bench import statistics
from memoir.bench.grid import Cell, Group, cell_of
from memoir.bench.results import Result
from memoir.bench.scaling import Growth, growths
from memoir.bench.statistics import Comparison
from memoir.bench.statistics.claims import Family, best_of
from memoir.bench.values import QUANTITIES, Comparer, Values, groups_of, step_of, unit_of, words_of
from memoir.bench.verdicts import BASELINE, NO_DATA, Analysis, Line, Overall, verdict_of


class Draft:
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
