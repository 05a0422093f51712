# SPDX-License-Identifier: Apache-2.0
"""What more threads and more load do to each allocator, and whether they do it to one more than to another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memoir.bench import statistics
from memoir.bench.grid import Block, Cell, block_of
from memoir.bench.results import Result
from memoir.bench.statistics import Comparison
from memoir.bench.values import Comparer, Values


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
            compare = Comparer("paired_t", 0.95, result.interleaved)
            serial = {block_of(row): row["wall"] for row in cells[serial_of(cell)]}
            comparison = compare.one(serial, {block_of(row): row["wall"] for row in cells[cell]})
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


Axis = Literal["threads", "load"]
Series = tuple[str, tuple[tuple[str, str], ...]]  # program, parameters


@dataclass(frozen=True)
class Growth:
    """By what factor an allocator's time grows with each doubling of an axis, over the factor of the baseline's."""

    series: Series
    axis: Axis
    allocator: str
    comparison: Comparison
    corrected_p: float = 1.0

    @property
    def key(self) -> tuple[object, ...]:
        return ("wall", "growth", self.series, self.axis, self.allocator)


def growths(result: Result, baseline: str, compare: Comparer) -> list[Growth]:
    """The interaction of allocator and threads, and of allocator and load: who scales better than the baseline.

    In every block each allocator's log time is fitted by a line over log2 of the axis (least squares, averaged over
    the other axis); the slopes of a block are paired as times are.
    """
    found = []
    for axis in ("threads", "load"):
        for series, slopes in _slopes(result, axis).items():
            for name, values in slopes.items():
                if name == baseline or baseline not in slopes:
                    continue
                comparison = compare.one(slopes[baseline], values, 0.0)
                if comparison is not None and comparison.n > 1:
                    found.append(Growth(series, axis, name, comparison))
    return found


def _slopes(result: Result, axis: Axis) -> dict[Series, dict[str, Values]]:
    """exp of the slope of log time over log2 of the axis, for each block that has every point."""
    curves: dict[tuple[Series, str], dict[Block, dict[int, dict[int, float]]]] = {}
    points: dict[Series, dict[int, set[int]]] = {}  # other axis -> the values of this one
    for cell, rows in result.cells().items():
        at, other = (cell.threads, cell.load) if axis == "threads" else (cell.load, cell.threads)
        series = cell.program, cell.parameters
        points.setdefault(series, {}).setdefault(other, set()).add(at)
        for row in rows:
            if row["wall"]:
                blocks = curves.setdefault((series, cell.allocator), {})
                blocks.setdefault(block_of(row), {}).setdefault(other, {})[at] = math.log(row["wall"])
    found: dict[Series, dict[str, Values]] = {}
    for (series, name), blocks in curves.items():
        wanted = {other: at for other, at in points[series].items() if len(at) > 1}
        values = {}
        for block, lines in blocks.items():
            if wanted and all(set(lines.get(other, {})) == at for other, at in wanted.items()):
                values[block] = math.exp(sum(_slope(lines[other]) for other in wanted) / len(wanted))
        if values:
            found.setdefault(series, {})[name] = values
    return found


def _slope(line: dict[int, float]) -> float:
    x = np.log2(np.array(list(line), dtype=float))
    y = np.array(list(line.values()))
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())
