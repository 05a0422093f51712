# SPDX-License-Identifier: Apache-2.0
"""Pictures of a bench: the study's three, memory against time, and live against resident bytes over time."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from memoir.bench import analysis, scaling, statistics
from memoir.bench.analysis import Analysis
from memoir.bench.grid import Cell, cell_of
from memoir.bench.journal import Record
from memoir.bench.results import Result
from memoir.views.bench_tables import label
from memoir.views.figures import import_matplotlib

# Okabe & Ito's colours: told apart by colour-blind readers too
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def all_figures(result: Result, wall: Analysis, memory: Analysis | None) -> dict[str, object]:
    """Every figure that the result has data for, by file name without its ending; matplotlib Figures."""
    figures = {"times": times(result), "ratios": ratios(wall)}
    if len({row["threads"] for row in result.rows}) > 1:
        figures["serial-normalised-by-allocator"] = serial_by_allocator(result)
        figures["serial-normalised-by-load"] = serial_by_load(result)
    if memory is not None:
        figures["memory-beside-time"] = memory_beside_time(wall, memory)
    if any("memory" in row for row in result.rows):
        figures["live-and-resident"] = live_and_resident(result)
    return {name: figure for name, figure in figures.items() if figure is not None}


def times(result: Result) -> Any:
    """The study's first figure: raw times, a column per thread count, a row per load; y axes are not
    shared."""
    names = result.allocators

    def draw(axes: Any, cells: dict[str, list[Record]]) -> None:
        for index, name in enumerate(names):
            values = [row["wall"] for row in cells.get(name, [])]
            if not values:
                axes.text(
                    index, 0.5, "failed", transform=axes.get_xaxis_transform(), ha="center", rotation=90
                )
                continue
            mean, low, high = statistics.mean_interval(values)
            error = [[mean - low], [high - mean]] if math.isfinite(low) else None
            axes.bar(index, mean, color=_colour(names, name), yerr=error, capsize=3, alpha=0.75)
            _points(axes, index, values)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
        axes.set_ylim(bottom=0)

    return _facets(result, draw, "time (s)", "Raw times", share_y=False)


def serial_by_allocator(result: Result) -> Any:
    """The study's second figure: times over the serial mean of the same allocator and load, by allocator."""
    names, normalised = result.allocators, scaling.serial_normalised(result)

    def draw(axes: Any, cells: dict[str, list[Record]]) -> None:
        for index, name in enumerate(names):
            rows = cells.get(name, [])
            if rows and (found := normalised.get(cell_of(rows[0]))):
                points, (ratio, low, high) = found
                error = [[ratio - low], [high - ratio]] if math.isfinite(high) else None
                axes.bar(index, ratio, color=_colour(names, name), yerr=error, capsize=3, alpha=0.75)
                _points(axes, index, points)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.axhline(1.0, color="black", linewidth=0.7)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)

    return _facets(
        result, draw, "serial-normalised time", "Serial-normalised times by allocator", share_y=True
    )


def serial_by_load(result: Result) -> Any:
    """The study's third figure: the same by load, a row per allocator; several programs stand side by
    side."""
    normalised = scaling.serial_normalised(result)
    if not normalised:
        return None
    names = [name for name in result.allocators if any(cell.allocator == name for cell in normalised)]
    threads = sorted({cell.threads for cell in normalised})
    loads = sorted({cell.load for cell in normalised})
    series = sorted(
        {(cell.program, cell.parameters) for cell in normalised},
        key=lambda one: (result.programs.index(one[0]), one[1]),
    )
    figure, grid = _grid(len(names), len(threads), share_y=True)
    width = 0.8 / len(series)
    for i, name in enumerate(names):
        for j, count in enumerate(threads):
            axes = grid[i][j]
            for k, (program, parameters) in enumerate(series):
                for x, load in enumerate(loads):
                    found = normalised.get(Cell(program, name, count, load, parameters))
                    if not found:
                        continue
                    points, (ratio, low, high) = found
                    at = x + (k - (len(series) - 1) / 2) * width
                    error = [[ratio - low], [high - ratio]] if math.isfinite(high) else None
                    text = label((program, None, 1, parameters)) if x == 0 else None
                    colour = _colour(names, name) if len(series) == 1 else _COLOURS[k % len(_COLOURS)]
                    axes.bar(at, ratio, width, yerr=error, capsize=2, label=text, color=colour, alpha=0.75)
                    if len(series) == 1:
                        _points(axes, at, points)
            axes.axhline(1.0, color="black", linewidth=0.7)
            axes.set_xticks(range(len(loads)), [f"load {load}" for load in loads])
            axes.set_title(f"{name}, {_threads(count)}", fontsize=8)
        grid[i][0].set_ylabel("serial-normalised time", fontsize=7)
    if len(series) > 1:
        figure.legend(
            *grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7
        )
    figure.suptitle("Serial-normalised times by load")
    return figure


def ratios(wall: Analysis) -> Any:
    """Every ratio with its interval around the line of no difference."""
    groups, names = list(wall.groups), list(dict.fromkeys(line.cell.allocator for line in wall.lines()))
    others = [name for name in names if name != wall.baseline]
    if not others:
        return None
    figure, grid = _grid(1, 1, size=(7.0, 1.2 + 0.16 * len(groups) * (len(others) + 1)))
    axes = grid[0][0]
    for i, group in enumerate(groups):
        by_name = {line.cell.allocator: line for line in wall.groups[group]}
        for k, name in enumerate(others):
            line = by_name.get(name)
            y = -(i * (len(others) + 1) + k)
            if line is None or line.comparison is None:
                axes.text(1.0, y, f" {name}: no data", fontsize=6, va="center", color=_colour(names, name))
                continue
            ratio, low, high = line.comparison.interval
            if math.isfinite(high):
                axes.plot([low, high], [y, y], color=_colour(names, name), linewidth=2)
            filled = line.verdict not in (analysis.NO_DIFFERENCE, analysis.UNCLEAR)
            face = _colour(names, name) if filled else "white"
            axes.plot(ratio, y, "o", color=_colour(names, name), markerfacecolor=face, markersize=5)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    middle = (len(others) - 1) / 2
    axes.set_yticks(
        [-(i * (len(others) + 1) + middle) for i in range(len(groups))], map(label, groups), fontsize=7
    )
    handles = [axes.plot([], [], "o-", color=_colour(names, name), label=name)[0] for name in others]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(others), fontsize=7)
    axes.set_xlabel(
        f"{wall.quantity} / {wall.baseline}, {wall.confidence:.0%} intervals; filled: differs", fontsize=8
    )
    return figure


def memory_beside_time(wall: Analysis, memory: Analysis) -> Any:
    """Peak memory against time, both over the baseline: left is faster, below is smaller."""
    names = list(dict.fromkeys(line.cell.allocator for line in wall.lines()))
    groups = list(wall.groups)
    if len(names) < 2:
        return None
    markers = "os^Dv<>PX*hpd8H1234"
    figure, grid = _grid(1, 1, size=(7.0, 5.0))
    axes = grid[0][0]
    for i, group in enumerate(groups):
        by_name = {line.cell.allocator: line.comparison for line in memory.groups[group]}
        for line in wall.groups[group]:
            beside = by_name.get(line.cell.allocator)
            if line.comparison is None or beside is None:
                continue
            (x, x_low, x_high), (y, y_low, y_high) = line.comparison.interval, beside.interval
            if math.isfinite(x_high) and math.isfinite(y_high):
                error = {"xerr": [[x - x_low], [x_high - x]], "yerr": [[y - y_low], [y_high - y]]}
            else:
                error = {}
            colour = _colour(names, line.cell.allocator)
            axes.errorbar(
                x,
                y,
                **error,
                fmt=markers[i % len(markers)],
                color=colour,
                elinewidth=0.7,
                markersize=5,
                alpha=0.8,
            )
    axes.axvline(1.0, color="black", linewidth=0.7)
    axes.axhline(1.0, color="black", linewidth=0.7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_ticks(axes.xaxis)
    _plain_ticks(axes.yaxis)
    axes.set_xlabel(f"time / {wall.baseline}")
    axes.set_ylabel(f"peak memory / {wall.baseline}")
    handles = [
        axes.plot([], [], "s", color=_colour(names, n), label=n)[0] for n in names if n != wall.baseline
    ]
    handles += [
        axes.plot([], [], markers[i % len(markers)], color="grey", label=label(group))[0]
        for i, group in enumerate(groups)
    ]
    figure.legend(handles=handles, loc="outside right upper", fontsize=6)
    figure.suptitle("Memory beside time")
    return figure


def live_and_resident(result: Result) -> Any:
    """Live and resident bytes over time, of each cell's median run: the gap is memory that nobody uses."""
    cells = {
        cell: rows for cell, rows in result.cells().items() if rows and all("memory" in row for row in rows)
    }
    groups = sorted(
        {cell.group for cell in cells}, key=lambda group: (result.programs.index(group[0]), group[1:])
    )
    if not groups:
        return None
    names = result.allocators
    figure, grid = _grid(len(groups), 1, size=(7.0, 2.6 * len(groups)))
    for axes, group in zip((row[0] for row in grid), groups, strict=True):
        for cell, rows in sorted(cells.items(), key=lambda entry: names.index(entry[0].allocator)):
            if cell.group != group:
                continue
            row = sorted(rows, key=lambda row: row["wall"])[len(rows) // 2]
            series = np.array(row["memory"], dtype=float)
            colour = _colour(names, cell.allocator)
            axes.plot(series[:, 0], series[:, 2] / 2**20, "-", color=colour, label=cell.allocator)
            axes.plot(series[:, 0], series[:, 1] / 2**20, ":", color=colour)
        axes.set_ylabel("MiB")
        axes.set_ylim(bottom=0)
        axes.set_title(f"{label(group)}: resident (lines) and live (dots)", fontsize=8)
        axes.legend(fontsize=6)
    grid[-1][0].set_xlabel("seconds since the start")
    return figure


def to_bytes(figure: Any, kind: str) -> bytes:
    """A figure as SVG (text stays text) or PNG; the same figure gives the same bytes."""
    matplotlib = import_matplotlib()
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "memoir"}):
        figure.savefig(out, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else {})
    return out.getvalue()


def _facets(
    result: Result,
    draw: Callable[[Any, dict[str, list[Record]]], None],
    y_label: str,
    title: str,
    share_y: bool,
) -> Any:
    cells = result.cells()
    threads = sorted({cell.threads for cell in cells})
    rows = sorted(
        {(cell.program, cell.parameters, cell.load) for cell in cells},
        key=lambda row: (row[1], row[2]),
    )
    rows.sort(key=lambda row: result.programs.index(row[0]))
    figure, grid = _grid(len(rows), len(threads), share_y=share_y)
    for i, (program, parameters, load) in enumerate(rows):
        for j, count in enumerate(threads):
            group = (program, count, load, parameters)
            draw(grid[i][j], {cell.allocator: found for cell, found in cells.items() if cell.group == group})
            grid[i][j].set_title(
                f"{label((program, None, 1, parameters))}: {_threads(count)}, load {load}", fontsize=8
            )
        grid[i][0].set_ylabel(y_label, fontsize=7)
    figure.suptitle(title)
    return figure


def _grid(rows: int, columns: int, share_y: bool = False, size: tuple[float, float] | None = None) -> Any:
    matplotlib = import_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=size or (1.2 + 2.4 * columns, 0.6 + 1.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)
    return figure, grid


def _points(axes: Any, at: float, values: statistics.Numbers) -> None:
    """Every single run next to its bar's middle: outliers are shown, not dropped."""
    spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(at + spread, values, ".", color="black", markersize=2, alpha=0.6)


def _plain_ticks(axis: Any) -> None:
    """0.8, 1, 1.2 instead of powers of ten on a logarithmic axis; the finer ones only where there is room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator

    def fine(value: float, _: int | None) -> str:
        low, high = axis.get_view_interval()
        roomy = high / low < 1.6 or (high / low < 5.0 and value < 2.0 and round(value * 10) % 2 == 0)
        return f"{value:g}" if roomy else ""

    below, between, above = np.arange(1, 10) / 100, np.arange(1, 20) / 10, np.arange(2, 20)
    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(FixedLocator(np.concatenate([below, between, above]).tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(fine))


def _threads(count: int) -> str:
    return f"{count} thread" + "s" * (count != 1)


def _colour(names: list[str], name: str) -> str:
    return _COLOURS[names.index(name) % len(_COLOURS)]
