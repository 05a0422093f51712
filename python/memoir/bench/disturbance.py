# SPDX-License-Identifier: Apache-2.0
"""What disturbed a bench: the place of a run in its replicate, drift, neighbours that are alike.

Balanced orders and pairing take the first two out of every ratio; they are named so that nobody reads absolute numbers
without knowing. The third makes intervals too narrow, and --sessions is the remedy.
"""

from __future__ import annotations

import math

import numpy as np

from memoir.base.files import Record
from memoir.bench.grid import Block, Cell, Group, block_of, cell_of
from memoir.bench.results import Result
from memoir.bench.statistics.intervals import paired_t
from memoir.bench.statistics.student import t_cdf

_LEVEL = 0.001  # of each warning: some of a thousand quiet benches have one
_WORTH = 0.005  # effects below half a percent are not worth a line
_FEWEST = 6  # replicates


def warnings(result: Result) -> list[str]:
    """A line for each thing that shows in the times of a bench that was run in blocks."""
    if not result.interleaved:
        return []
    rows = [row for row in result.rows if row["status"] == "ok" and row["wall"]]
    residuals = _residuals(rows)
    blocks: dict[Block, list[float]] = {}
    for row, residual in zip(rows, residuals, strict=True):
        blocks.setdefault(block_of(row), []).append(residual)
    if len(blocks) < _FEWEST:
        return []
    return [text for text in (_place(rows, residuals), _drift(blocks), _alike(rows, residuals)) if text]


def _residuals(rows: list[Record]) -> list[float]:
    """Logarithms of times, without their cell's mean."""
    logs: dict[object, list[float]] = {}
    for row in rows:
        logs.setdefault(cell_of(row), []).append(math.log(row["wall"]))
    means = {cell: sum(values) / len(values) for cell, values in logs.items()}
    return [math.log(row["wall"]) - means[cell_of(row)] for row in rows]


def _place(rows: list[Record], residuals: list[float]) -> str | None:
    """Do runs that come later within their group of a replicate take longer?"""
    groups: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for row, residual in zip(rows, residuals, strict=True):
        if "position" in row:
            groups.setdefault((block_of(row), cell_of(row).group), []).append((row["position"], residual))
    slopes = []
    for places in groups.values():
        if len(places) > 1:
            x = np.argsort(np.argsort([place for place, _ in places])).astype(float)
            slopes.append(_slope(x, np.array([residual for _, residual in places])))
    if len(slopes) < _FEWEST:
        return None
    centre, _, _, p = paired_t(np.array(slopes))
    if p > _LEVEL or abs(centre) < _WORTH:
        return None
    return (
        f"each later place within a replicate makes a run {_by(float(centre))}: what runs before warms or tires the "
        "machine; every allocator stands in every place equally often, so ratios are not touched"
    )


def _drift(blocks: dict[Block, list[float]]) -> str | None:
    """Does the whole machine get slower or faster?"""
    levels = np.array([np.mean(blocks[block]) for block in sorted(blocks)])
    x = np.arange(len(levels), dtype=float)
    slope = _slope(x, levels)
    rest = levels - levels.mean() - slope * (x - x.mean())
    error = math.sqrt(float((rest**2).sum()) / max(len(levels) - 2, 1) / float(((x - x.mean()) ** 2).sum()))
    t = abs(slope) / error if error else math.inf
    change = slope * (len(levels) - 1)
    if 2 * (1 - t_cdf(t, len(levels) - 2)) > _LEVEL or abs(change) < _WORTH:
        return None
    return f"from the first replicate to the last all runs became {_by(change)}; pairing takes this out of the ratios"


def _alike(rows: list[Record], residuals: list[float]) -> str | None:
    """Is what is left after pairing alike from one replicate to the next?"""
    cells: dict[Cell, dict[Block, float]] = {}
    for row, residual in zip(rows, residuals, strict=True):
        cells.setdefault(cell_of(row), {})[block_of(row)] = residual
    by_group: dict[Group, list[dict[Block, float]]] = {}
    for cell, values in cells.items():
        by_group.setdefault(cell.group, []).append(values)
    products, squares, pairs = 0.0, 0.0, 0
    for members in by_group.values():
        for other in members[1:]:
            common = sorted(set(members[0]) & set(other))
            d = np.array([other[block] - members[0][block] for block in common])
            if len(d) < _FEWEST:
                continue
            d = d - d.mean()
            products += float(
                (d[1:] * d[:-1]).sum() + (d**2).sum() / len(d)
            )  # the mean was taken out: minus 1 / n
            squares += float((d**2).sum())
            pairs += len(d) - 1
    if not pairs or not squares:
        return None
    likeness = products / squares
    if likeness * math.sqrt(pairs) < 3.1:
        return None
    return (
        f"differences of neighbouring replicates are alike (correlation {likeness:.2f}): intervals are too narrow; "
        "--sessions 6 measures what lasts"
    )


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def _by(logarithm: float) -> str:
    return f"{abs(math.expm1(logarithm)):.1%} {'slower' if logarithm > 0 else 'faster'}".replace("%", " %")
