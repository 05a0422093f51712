# SPDX-License-Identifier: Apache-2.0
"""What an analysis says: of each allocator in each group, of each one over all groups, and of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memoir.bench import statistics
from memoir.bench.grid import Cell, Group
from memoir.bench.scaling import Growth
from memoir.bench.statistics import Comparison

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


def verdict_of(comparison: Comparison, corrected_p: float, less: str, more: str) -> str:
    if comparison.interval.includes_one:
        return NO_DIFFERENCE
    if not statistics.differs(comparison, corrected_p):
        return UNCLEAR
    return less if comparison.interval.ratio < 1 else more


def differences(analyses: Mapping[str, Analysis]) -> list[str]:
    """Every difference that a report of these analyses asserts, a line each: nothing, where all are alike."""
    silent = (BASELINE, NO_DATA, NO_DIFFERENCE, UNCLEAR)
    found: list[str] = []
    for name, a in analyses.items():
        for line in a.lines():
            if line.verdict not in silent:
                found.append(f"{name}, {_place(line.cell.group)}: {line.cell.allocator} is {line.verdict}")
        found += [f"{name}, {_place(group)}: {best} is best" for group, best in a.winners.items() if best]
        found += [
            f"{name}: {o} is {one.verdict}" for o, one in a.overall.items() if one.verdict not in silent
        ]
        found += [f"{name}: {a.best} is best"] * (a.best is not None)
        for growth in a.growths:
            if statistics.differs(growth.comparison, growth.corrected_p):
                found.append(f"{name}: {growth.allocator} scales otherwise with {growth.axis}")
    return found


def _place(group: Group) -> str:
    program, threads, load, parameters = group
    axes = [f"threads={threads}", f"load={load}", *(f"{name}={value}" for name, value in parameters)]
    return " ".join([program, *axes])
