# SPDX-License-Identifier: Apache-2.0
"""Pictures of a bench against time: memory while a program runs, and the runs in their order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from memoir.base.files import Record
from memoir.bench.grid import Cell, Group, cell_of
from memoir.bench.results import Result
from memoir.views.bench_drawing import colour, grid
from memoir.views.bench_tables import label


def live_and_resident(result: Result) -> Any:
    """Live and resident bytes over time, of each cell's median run: the gap is memory that nobody uses."""
    cells = {
        cell: rows for cell, rows in result.cells().items() if rows and all("memory" in row for row in rows)
    }
    return _over_time(
        result,
        cells,
        "memory",
        line=2,
        dots=1,
        title="resident memory (lines; lower is better) and live (dots)",
    )


def memory_over_time(result: Result) -> Any:
    """Resident (lines) and proportional bytes (dots), seen from outside, of each cell's median run."""
    cells = {
        cell: [row for row in rows if "samples" in row]
        for cell, rows in result.cells().items()
        if any("samples" in row for row in rows)
    }
    return _over_time(
        result,
        cells,
        "samples",
        line=1,
        dots=2,
        title="resident memory (lines; lower is better), shared out (dots)",
    )


def _over_time(
    result: Result, cells: dict[Cell, list[Record]], series: str, *, line: int, dots: int, title: str
) -> Any:
    """Two columns of the rows' `series` over its first, seconds: one picture a group, None without any."""
    groups = _groups(result, cells)
    if not groups:
        return None
    names = result.allocators
    figure, drawn = grid(len(groups), 1, size=(7.0, 2.6 * len(groups)))
    for axes, group in zip((row[0] for row in drawn), groups, strict=True):
        for cell, rows in sorted(cells.items(), key=lambda entry: names.index(entry[0].allocator)):
            if cell.group != group:
                continue
            median = sorted(rows, key=lambda row: row["wall"])[len(rows) // 2]
            samples = np.array(median[series], dtype=float)
            shade = colour(names, cell.allocator)
            axes.plot(samples[:, 0], samples[:, line] / 2**20, "-", color=shade, label=cell.allocator)
            axes.plot(samples[:, 0], samples[:, dots] / 2**20, ":", color=shade)
        axes.set_ylabel("MiB")
        axes.set_ylim(bottom=0)
        axes.set_title(f"{label(group)}: {title}", fontsize=8)
        axes.legend(fontsize=7)
    drawn[-1][0].set_xlabel("seconds since the start")
    return figure


def run_order(result: Result) -> Any:
    """Every run's time over its cell's mean, in the order in which they were run: drift and neighbours show."""
    rows = [row for row in result.rows if row["status"] == "ok" and row["wall"] and "started" in row]
    if len(rows) < 2:
        return None
    rows.sort(key=lambda row: row["started"])
    logs: dict[Cell, list[float]] = {}
    for row in rows:
        logs.setdefault(cell_of(row), []).append(math.log(row["wall"]))
    names = result.allocators
    figure, drawn = grid(1, 1, size=(7.0, 2.6))
    axes = drawn[0][0]
    for name in names:
        own = [(at, row) for at, row in enumerate(rows) if row["allocator"] == name]
        y = [math.exp(math.log(row["wall"]) - float(np.mean(logs[cell_of(row)]))) for _, row in own]
        axes.plot([at for at, _ in own], y, ".", markersize=4, color=colour(names, name), label=name)
    axes.axhline(1.0, color="black", linewidth=0.7)
    axes.set_xlabel("run", fontsize=7)
    axes.set_ylabel("time / mean of its cell", fontsize=7)
    figure.legend(loc="outside lower center", ncols=min(len(names), 8), fontsize=7)
    figure.suptitle("Runs in their order (level is good: no drift)")
    return figure


def _groups(result: Result, cells: dict[Cell, list[Record]]) -> list[Group]:
    return sorted(
        {cell.group for cell in cells}, key=lambda group: (result.programs.index(group[0]), group[1:])
    )
