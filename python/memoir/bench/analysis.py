# SPDX-License-Identifier: Apache-2.0
"""From rows to statements: what each allocator did in each group of cells, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir._core import Error
from memoir.bench import statistics
from memoir.bench.grid import Block, Cell, Group, block_of, cell_of
from memoir.bench.journal import Record
from memoir.bench.results import Result
from memoir.bench.statistics import Comparison

# quantity -> (unit, what less of it is called, what more of it is called)
QUANTITIES = {
    "wall": ("s", "faster", "slower"),
    "cpu": ("s", "less", "more"),
    "peak_rss": ("B", "less", "more"),
    "minor_faults": ("", "fewer", "more"),
}
BASELINE, NO_DATA = "baseline", "no data"
NO_DIFFERENCE = "no difference shown"
UNCLEAR = "unclear"  # the interval excludes 1, but among so many comparisons that may be chance


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
    overall: dict[str, Comparison]  # geometric mean of an allocator's ratios over the groups it has data in
    overall_groups: dict[str, int]  # how many groups those are
    warnings: tuple[str, ...]

    def lines(self) -> list[Line]:
        return [line for lines in self.groups.values() for line in lines]


def quantities(result: Result) -> list[str]:
    """What can be analysed: wall time, and whatever else every counted row has."""
    rows = [row for row in result.rows if row["status"] == "ok"]
    found = []
    for name in (*QUANTITIES, *(metric.name for metric in result.metrics)):
        values = [value_of(row, name) for row in rows]
        if rows and any(value is not None and value > 0 for value in values):
            found.append(name)
    counted = dict.fromkeys(name for row in rows for name in row.get("counters", {}))
    return found + list(counted)


def value_of(row: Record, quantity: str) -> float | None:
    """A row's value, or None where it has none."""
    if quantity == "cpu":
        return row["user"] + row["system"] if "user" in row and "system" in row else None
    for place in (row.get("metrics", {}), row.get("counters", {}), row):
        if quantity in place:
            value: float | None = place[quantity]
            return value
    return None


def analyse(
    result: Result,
    quantity: str = "wall",
    baseline: str | None = None,
    method: str = "paired_t",
    confidence: float = 0.95,
) -> Analysis:
    """Compares every allocator with the baseline (the first one) in every group.

    Runs that were not interleaved are compared by welch_t whatever `method` says: their replicates are no
    blocks.
    Raises memoir.Error for an unknown baseline.
    """
    names = result.allocators
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise Error(f"baseline {baseline!r} is not among {', '.join(names)}")
    if method == "paired_t" and not result.interleaved:
        method = "welch_t"
    metric = next((metric for metric in result.metrics if metric.name == quantity), None)
    higher = metric is not None and metric.higher_is_better
    groups = _groups(result, quantity)
    compare = _comparer(method, confidence)
    compared = {
        (group, name): compare(cells[baseline], cells[name])
        for group, cells in groups.items()
        for name in cells
        if name != baseline and baseline in cells
    }
    possible = {key: comparison for key, comparison in compared.items() if comparison is not None}
    p_values = statistics.correct_many([comparison.p_value for comparison in possible.values()])
    corrected = dict(zip(possible, p_values.tolist(), strict=True))
    failed: dict[Cell, int] = {}
    for row in result.failures:
        failed[cell_of(row)] = failed.get(cell_of(row), 0) + 1
    unit, less, more = QUANTITIES.get(quantity, ("", "lower", "higher"))
    lines: dict[Group, list[Line]] = {}
    for group, cells in groups.items():
        for name in sorted(cells, key=names.index):
            key = (group, name)
            comparison = compared.get(key)
            verdict = BASELINE if name == baseline else NO_DATA
            if comparison is not None:
                verdict = _verdict(comparison, corrected[key], less, more)
            cell = Cell(group[0], name, group[1], group[2], group[3])
            lines.setdefault(group, []).append(
                _line(cell, cells[name], failed.get(cell, 0), comparison, corrected.get(key), verdict)
            )
    over_all = _overall(groups, baseline, names, method, confidence)
    return Analysis(
        quantity=quantity,
        unit=unit,
        higher_is_better=higher,
        baseline=baseline,
        method=method,
        confidence=confidence,
        groups=lines,
        winners={group: _winner(cells, compare, higher, confidence) for group, cells in groups.items()},
        overall={name: comparison for name, (comparison, _) in over_all.items()},
        overall_groups={name: count for name, (_, count) in over_all.items()},
        warnings=_warnings(method, compared.values()),
    )


@dataclass(frozen=True)
class Change:
    """One cell in two benches."""

    cell: Cell
    before: float  # mean, or geometric mean of the ratios
    after: float
    comparison: Comparison
    corrected_p: float
    verdict: str


def changes(
    first: Result, second: Result, quantity: str, relative: str | None = None, confidence: float = 0.95
) -> list[Change]:
    """Every cell that both have: after / before by Welch's t, since two benches share no blocks.

    relative: compare ratios to this allocator, replicate by replicate, instead of each one's own numbers.
    """
    olds, news = (_groups(one, quantity) for one in (first, second))
    found = []
    for group in olds:
        for name in olds[group]:
            if name == relative or name not in news.get(group, {}):
                continue
            before, after = (_relative(groups[group], name, relative) for groups in (olds, news))
            if len(before) and len(after) and min(*before, *after) > 0:
                comparison = statistics.compare(before, after, confidence=confidence, method="welch_t")
                average = statistics.geometric_mean if relative else (lambda x: float(np.mean(x)))
                cell = Cell(group[0], name, group[1], group[2], group[3])
                found.append((cell, average(before), average(after), comparison))
    corrected = statistics.correct_many([comparison.p_value for *_, comparison in found]).tolist()
    _, less, more = QUANTITIES.get(quantity, ("", "lower", "higher"))
    return [
        Change(cell, before, after, comparison, p, _verdict(comparison, p, less, more))
        for (cell, before, after, comparison), p in zip(found, corrected, strict=True)
    ]


def widest(result: Result, **judge: Any) -> float:
    """The largest half width of all ratios of time and printed metrics: what --until watches.

    With one allocator there are no ratios, and the means' own intervals count. inf while one knows nothing.
    """
    widths = []
    for quantity in ("wall", *(metric.name for metric in result.metrics)):
        lines = [line for line in analyse(result, quantity, **judge).lines() if line.n]
        ratios = [line.comparison.interval.half_width for line in lines if line.comparison is not None]
        widths += ratios or [(line.high - line.mean) / abs(line.mean) for line in lines if line.mean]
    return max(widths, default=math.inf)


def serial_normalised(result: Result) -> dict[Cell, tuple[np.ndarray, tuple[float, float, float]]]:
    """Per cell: times over the mean of the same allocator and load with one thread; (ratio, low, high).

    The points are the study's. The interval is of the ratio of means, and so knows that the serial time was
    measured too; the study's error bars took it as exact.
    """
    cells = {cell: rows for cell, rows in result.cells().items() if rows}
    order = [(cell, row) for cell, rows in cells.items() for row in rows]

    def serial_of(cell: Cell) -> Cell:
        return Cell(cell.program, cell.allocator, 1, cell.load, cell.parameters)

    points = statistics.serial_normalised(
        [row["wall"] for _, row in order],
        [cell.threads for cell, _ in order],
        [serial_of(cell) for cell, _ in order],
    )
    found: dict[Cell, tuple[np.ndarray, tuple[float, float, float]]] = {}
    for cell in cells:
        own = np.array([point for point, (owner, _) in zip(points, order, strict=True) if owner == cell])
        if np.isnan(own).any():
            continue
        interval: tuple[float, float, float] = (1.0, 1.0, 1.0)
        if cell.threads != 1:
            compare = _comparer("paired_t" if result.interleaved else "welch_t", 0.95)
            serial = {block_of(row): row["wall"] for row in cells[serial_of(cell)]}
            comparison = compare(serial, {block_of(row): row["wall"] for row in cells[cell]})
            interval = comparison.interval if comparison else (float(own.mean()), 0.0, math.inf)
        found[cell] = (own, interval)
    return found


def throughputs(result: Result) -> dict[Cell, tuple[tuple[float, float, float], tuple[float, float, float]]]:
    """Per cell: mean aggregate (Work / Time) and marginal (Load / Time) throughput, with intervals."""
    found = {}
    for cell, rows in result.cells().items():
        if not rows:
            continue
        times = [row["wall"] for row in rows]
        aggregate, marginal = statistics.throughput(
            [row["work"] for row in rows], [cell.load] * len(rows), times
        )
        found[cell] = (statistics.mean_interval(aggregate), statistics.mean_interval(marginal))
    return found


# --- inside: a cell's values are a dictionary block -> value ---

Values = dict[Block, float]
Comparer = Callable[[Values, Values], Comparison | None]


def _groups(result: Result, quantity: str) -> dict[Group, dict[str, Values]]:
    groups: dict[Group, dict[str, Values]] = {}
    for cell, rows in result.cells().items():
        values = {block_of(row): value_of(row, quantity) for row in rows}
        known = {block: value for block, value in values.items() if value is not None}
        groups.setdefault(cell.group, {})[cell.allocator] = known
    programs = list(dict.fromkeys([*result.programs, *(group[0] for group in groups)]))
    key = lambda group: (programs.index(group[0]), group[3], group[1], group[2])  # noqa: E731
    return {group: groups[group] for group in sorted(groups, key=key)}


def _comparer(method: str, confidence: float) -> Comparer:
    def compare(first: Values, second: Values) -> Comparison | None:
        if method != "welch_t":
            common = [block for block in first if block in second]
            first, second = {b: first[b] for b in common}, {b: second[b] for b in common}
        values = [*first.values(), *second.values()]
        if not first or not second or min(values) <= 0:
            return None
        blocks = (list(first), list(second))
        return statistics.compare(
            list(first.values()), list(second.values()), blocks=blocks, confidence=confidence, method=method
        )

    return compare


def _verdict(comparison: Comparison, corrected_p: float, less: str, more: str) -> str:
    if comparison.interval.includes_one:
        return NO_DIFFERENCE
    if not statistics.differs(comparison, corrected_p):
        return UNCLEAR
    return less if comparison.interval.ratio < 1 else more


def _relative(cells: dict[str, Values], name: str, relative: str | None) -> np.ndarray:
    own = cells[name]
    if relative is None:
        return np.array(list(own.values()), dtype=float)
    base = cells.get(relative, {})
    return np.array([own[block] / base[block] for block in own if base.get(block)], dtype=float)


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


def _winner(cells: dict[str, Values], compare: Comparer, higher: bool, confidence: float) -> str | None:
    """The allocator that is better than every other one, corrected for the pairs looked at."""
    known = {name: values for name, values in cells.items() if values}
    if len(known) < 2 or len(known) != len(cells):
        return None  # one that failed may have been the best
    level = {
        name: float(np.mean(np.log(np.maximum(list(values.values()), 1e-300))))
        for name, values in known.items()
    }
    best = (max if higher else min)(level, key=lambda name: level[name])
    compared = [compare(known[best], known[name]) for name in known if name != best]
    comparisons = [comparison for comparison in compared if comparison is not None]
    if len(comparisons) < len(compared):
        return None
    corrected = statistics.correct_many([comparison.p_value for comparison in comparisons])
    wins = all(
        statistics.differs(comparison, p)
        for comparison, p in zip(comparisons, corrected.tolist(), strict=True)
    )
    return best if wins else None


def _overall(
    groups: dict[Group, dict[str, Values]], baseline: str, names: list[str], method: str, confidence: float
) -> dict[str, tuple[Comparison, int]]:
    """Geometric mean over the groups that both have, and their number; a block stays a block."""
    found = {}
    for name in names:
        usable = [
            (cells[baseline], cells[name])
            for cells in groups.values()
            if cells.get(baseline)
            and cells.get(name)
            and min([*cells[baseline].values(), *cells[name].values()]) > 0
        ]
        if name == baseline or not usable:
            continue
        blocks = set.intersection(*(set(first) & set(second) for first, second in usable))
        if not blocks:
            continue
        levels = [
            [
                float(np.exp(np.mean([math.log(pair[side][block]) for pair in usable])))
                for block in sorted(blocks)
            ]
            for side in (0, 1)
        ]
        comparison = statistics.compare(levels[0], levels[1], confidence=confidence, method=method)
        found[name] = comparison, len(usable)
    return found


def _warnings(method: str, comparisons: Iterable[Comparison | None]) -> tuple[str, ...]:
    smallest = min((comparison.n for comparison in comparisons if comparison is not None), default=None)
    warning = None if smallest is None else statistics.warning(method, smallest)
    return () if warning is None else (warning,)
