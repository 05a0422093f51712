# SPDX-License-Identifier: Apache-2.0
"""What changed between two benches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memoir.bench import statistics
from memoir.bench.grid import Cell
from memoir.bench.results import Result
from memoir.bench.statistics import Comparison
from memoir.bench.statistics.claims import Family
from memoir.bench.values import Values, groups_of, step_of, words_of
from memoir.bench.verdicts import verdict_of


@dataclass(frozen=True)
class Change:
    """One cell in two benches."""

    cell: Cell
    before: float  # mean, or geometric mean of the ratios
    after: float
    comparison: Comparison
    corrected_p: float
    verdict: str
    exceeds_p: float  # corrected, one-sided: that it is not beyond the limit that was asked for


def changes(
    first: Result,
    second: Result,
    names: Sequence[str],
    relative: str | None = None,
    confidence: float = 0.95,
    beyond: Callable[[str], float] = lambda quantity: 0.0,
) -> dict[str, list[Change]]:
    """Every cell that both have: after / before by Welch's t, since two benches share no blocks; by quantity.

    All of them are corrected together.
    relative: compare ratios to this allocator, replicate by replicate, instead of each one's own numbers.
    beyond: of a quantity, how much more (0.02) or less (-0.02) a change must be for exceeds_p.
    """
    found, family, stricter = [], Family(), Family()
    for quantity in names:
        olds, news = (groups_of(one, quantity) for one in (first, second))
        step = max(step_of(one, quantity, groups) for one, groups in ((first, olds), (second, news)))
        step = 0.0 if relative else step
        both = [(group, name) for group in olds for name in olds[group] if name in news.get(group, {})]
        for group, name in both:
            if name == relative:
                continue
            before, after = (_relative(one[group], name, relative) for one in (olds, news))
            if not (len(before) and len(after) and min(*before, *after) > 0):
                continue
            how: dict[str, Any] = {"confidence": confidence, "method": "welch_t", "step": step}
            comparison = statistics.compare(before, after, **how)
            limit = beyond(quantity)
            moved = statistics.compare(before * (1.0 + limit), after, **how)
            average = statistics.geometric_mean if relative else (lambda x: float(np.mean(x)))
            cell = Cell(group[0], name, group[1], group[2], group[3])
            found.append((quantity, cell, average(before), average(after), comparison))
            family.add((quantity, cell), comparison.p_value)
            stricter.add((quantity, cell), statistics.one_sided(moved, above=limit >= 0))
    corrected, exceeds = family.corrected(), stricter.corrected()
    changed: dict[str, list[Change]] = {name: [] for name in names}
    for quantity, cell, old, new, comparison in found:
        p = corrected[(quantity, cell)]
        verdict = verdict_of(comparison, p, *words_of(quantity))
        changed[quantity].append(Change(cell, old, new, comparison, p, verdict, exceeds[(quantity, cell)]))
    return changed


def _relative(cells: dict[str, Values], name: str, relative: str | None) -> np.ndarray:
    own = cells[name]
    if relative is None:
        return np.array(list(own.values()), dtype=float)
    base = cells.get(relative, {})
    return np.array([own[block] / base[block] for block in own if base.get(block)], dtype=float)
