# SPDX-License-Identifier: Apache-2.0
"""The quantities of a result: a cell's values by block, and how those of two cells are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir.base.files import Record
from memoir.bench import statistics
from memoir.bench.grid import Block, Group, block_of
from memoir.bench.results import Result
from memoir.bench.statistics import Comparison

# quantity -> (unit, what less of it is called, what more of it is called)
QUANTITIES = {
    "wall": ("s", "faster", "slower"),
    "cpu": ("s", "less", "more"),
    "peak_rss": ("B", "less", "more"),
    "minor_faults": ("", "fewer", "more"),
}
# The smallest step of a quantity that is counted; what programs print and what files hold may be coarser.
_STEPS = {"wall": 1e-6, "cpu": 1e-6, "peak_rss": 4096.0, "minor_faults": 1.0}
_MEMORY = ("rss_", "pss_", "huge_", "lazy_", "swap_")  # what a row's samples of its memory became

Values = dict[Block, float]


@dataclass(frozen=True)
class Comparer:
    """How the values of two cells are compared."""

    method: str
    confidence: float
    paired: bool
    step: float = 0.0  # what the values come in
    session_means: bool = False  # sessions are what was repeated: their means are compared

    def one(self, first: Values, second: Values, step: float | None = None) -> Comparison | None:
        """second / first; None without data that ratios can be made of."""
        if self.paired and self.method != "welch_t":
            common = [block for block in first if block in second]
            first, second = {b: first[b] for b in common}, {b: second[b] for b in common}
        values = [*first.values(), *second.values()]
        if not first or not second or min(values) <= 0:
            return None
        labels = [[b[0] for b in side] if self.session_means else list(side) for side in (first, second)]
        return statistics.compare(
            list(first.values()), list(second.values()), blocks=(labels[0], labels[1]), **self._how(step)
        )

    def over(self, pairs: Sequence[tuple[Values, Values]]) -> Comparison | None:
        """The geometric mean of second / first over several groups; a block stays a block."""
        levels = self._levels(pairs)
        return None if levels is None else self.one(levels[0], levels[1], self._step_of_mean(pairs))

    def same_within(self, margin: float, pairs: Sequence[tuple[Values, Values]]) -> float:
        """p of "over these groups they differ by more than the margin"."""
        levels = self._levels(pairs)
        if levels is None:
            return 1.0
        first, second = levels
        larger, smaller = (
            self.one(first, {b: value * factor for b, value in second.items()}, self._step_of_mean(pairs))
            for factor in (1.0 + margin, 1.0 / (1.0 + margin))
        )
        if larger is None or smaller is None:
            return 1.0
        return max(statistics.one_sided(larger, above=True), statistics.one_sided(smaller, above=False))

    def _step_of_mean(self, pairs: Sequence[tuple[Values, Values]]) -> float:
        return self.step / math.sqrt(len(pairs))

    def _levels(self, pairs: Sequence[tuple[Values, Values]]) -> list[Values] | None:
        if len(pairs) == 1:
            return list(pairs[0])
        sides: list[Values] = []
        if self.paired and self.method != "welch_t":
            both = set.intersection(*(set(first) & set(second) for first, second in pairs))
            shared = [both, both]
        else:
            shared = [set.intersection(*(set(pair[side]) for pair in pairs)) for side in (0, 1)]
        for side, blocks in enumerate(shared):
            if not blocks:
                return None
            sides.append(
                {
                    block: math.exp(sum(math.log(pair[side][block]) for pair in pairs) / len(pairs))
                    for block in sorted(blocks)
                }
            )
        return sides

    def _how(self, step: float | None) -> dict[str, Any]:
        return {
            "confidence": self.confidence,
            "method": self.method,
            "paired": self.paired,
            "step": self.step if step is None else step,
        }


def quantities(result: Result) -> list[str]:
    """What can be analysed: wall time, and whatever else every counted row has."""
    rows = [row for row in result.rows if row["status"] == "ok"]
    found = []
    for name in (*QUANTITIES, *(metric.name for metric in result.metrics)):
        values = [value_of(row, name) for row in rows]
        if rows and any(value is not None and value > 0 for value in values):
            found.append(name)
    counted = dict.fromkeys(name for row in rows for name in row.get("counters", {}))
    sampled = dict.fromkeys(name for row in rows for name in row if name.startswith(_MEMORY))
    return found + [
        name for name in (*counted, *sampled) if any((value_of(row, name) or 0) > 0 for row in rows)
    ]


def unit_of(quantity: str) -> str:
    return "B" if quantity.startswith(_MEMORY) else QUANTITIES.get(quantity, ("",))[0]


def value_of(row: Record, quantity: str) -> float | None:
    """A row's value, or None where it has none."""
    if quantity == "cpu":
        return row["user"] + row["system"] if "user" in row and "system" in row else None
    for place in (row.get("metrics", {}), row.get("counters", {}), row):
        if quantity in place:
            value: float | None = place[quantity]
            return value
    return None


def groups_of(result: Result, quantity: str) -> dict[Group, dict[str, Values]]:
    """Every group's cells by allocator: a value for each block that has one."""
    groups: dict[Group, dict[str, Values]] = {}
    for cell, rows in result.cells().items():
        values = {block_of(row): value_of(row, quantity) for row in rows}
        known = {block: value for block, value in values.items() if value is not None}
        groups.setdefault(cell.group, {})[cell.allocator] = known
    programs = list(dict.fromkeys([*result.programs, *(group[0] for group in groups)]))
    key = lambda group: (programs.index(group[0]), group[3], group[1], group[2])  # noqa: E731
    return {group: groups[group] for group in sorted(groups, key=key)}


def step_of(result: Result, quantity: str, groups: dict[Group, dict[str, Values]]) -> float:
    """The step that a quantity's values come in: what the kernel counts in, or the smallest gap between any two."""
    known = _STEPS.get(quantity, 0.0)
    if known and "machine" in result.header:
        return known
    values = {value for cells in groups.values() for found in cells.values() for value in found.values()}
    ordered = np.sort(np.array(list(values), dtype=float))
    gaps = np.diff(ordered)
    return float(gaps.min()) if len(gaps) else 0.0


def words_of(quantity: str) -> tuple[str, str]:
    """What less and more of a quantity is called."""
    if quantity.startswith(_MEMORY):
        return "less", "more"
    _, less, more = QUANTITIES.get(quantity, ("", "lower", "higher"))
    return less, more
