# SPDX-License-Identifier: Apache-2.0
"""Pictures of a bench: the study's three, memory against time, and live against resident bytes over time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from memoir.base.files import Record
from memoir.base.quantities import duration_text
from memoir.bench import scaling, statistics, verdicts
from memoir.bench.grid import Cell, cell_of
from memoir.bench.results import Result
from memoir.bench.verdicts import Analysis
from memoir.views.bench_drawing import COLOURS, colour, grid, plain_ticks, points, threads_text
from memoir.views.bench_tables import interval, label
from memoir.views.bench_timelines import live_and_resident, memory_over_time, run_order


def all_figures(result: Result, wall: Analysis, memory: Analysis | None) -> dict[str, object]:
    """Every figure that the result has data for, by file name without its ending; matplotlib Figures."""
    figures = {"times": times(result), "ratios": ratios(wall)}
    if len({row["threads"] for row in result.rows}) > 1:
        figures["serial-normalised-by-allocator"] = serial_by_allocator(result)
        if len({row["load"] for row in result.rows}) > 1:
            figures["serial-normalised-by-load"] = serial_by_load(result)
        figures["scaling"] = scaling_of_ratios(wall)
    if memory is not None:
        figures["memory-against-time"] = memory_against_time(wall, memory)
    if any("memory" in row for row in result.rows):
        figures["live-and-resident"] = live_and_resident(result)
    if any("samples" in row for row in result.rows):
        figures["memory-over-time"] = memory_over_time(result)
    figures["run-order"] = run_order(result)
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
            axes.bar(index, mean, color=colour(names, name), yerr=error, capsize=3, alpha=0.75)
            points(axes, index, values)
            axes.text(
                index, 0.02, duration_text(mean * 1e9), transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                fontsize=7, bbox={"facecolor": "white", "alpha": 0.7, "pad": 0.8, "linewidth": 0},
            )  # fmt: skip
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
        axes.set_ylim(bottom=0)

    return _facets(result, draw, "time (s)", "Time of each run (lower is better)", share_y=False)


def serial_by_allocator(result: Result) -> Any:
    """The study's second figure: times over the serial mean of the same allocator and load, by allocator."""
    names, normalised = result.allocators, scaling.serial_normalised(result)

    def draw(axes: Any, cells: dict[str, list[Record]]) -> None:
        for index, name in enumerate(names):
            rows = cells.get(name, [])
            if rows and (found := normalised.get(cell_of(rows[0]))):
                values, (ratio, low, high) = found
                error = [[ratio - low], [high - ratio]] if math.isfinite(high) else None
                axes.bar(index, ratio, color=colour(names, name), yerr=error, capsize=3, alpha=0.75)
                points(axes, index, values)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.axhline(1.0, color="black", linewidth=0.7)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)

    return _facets(
        result,
        draw,
        "serial-normalised time",
        "Time over the mean of one thread (lower is better)",
        share_y=True,
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
    figure, cells = grid(len(names), len(threads), share_y=True)
    width = 0.8 / len(series)
    for i, name in enumerate(names):
        for j, count in enumerate(threads):
            axes = cells[i][j]
            for k, (program, parameters) in enumerate(series):
                for x, load in enumerate(loads):
                    found = normalised.get(Cell(program, name, count, load, parameters))
                    if not found:
                        continue
                    values, (ratio, low, high) = found
                    at = x + (k - (len(series) - 1) / 2) * width
                    error = [[ratio - low], [high - ratio]] if math.isfinite(high) else None
                    text = label((program, None, 1, parameters)) if x == 0 else None
                    shade = colour(names, name) if len(series) == 1 else COLOURS[k % len(COLOURS)]
                    axes.bar(at, ratio, width, yerr=error, capsize=2, label=text, color=shade, alpha=0.75)
                    if len(series) == 1:
                        points(axes, at, values)
            axes.axhline(1.0, color="black", linewidth=0.7)
            axes.set_xticks(range(len(loads)), [f"load {load}" for load in loads])
            axes.set_title(f"{name}, {threads_text(count)}", fontsize=8)
        cells[i][0].set_ylabel("serial-normalised time", fontsize=7)
    if len(series) > 1:
        figure.legend(
            *cells[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7
        )
    figure.suptitle("Time over the mean of one thread, by load (lower is better)")
    return figure


def ratios(wall: Analysis) -> Any:
    """Every ratio with its interval around the line of no difference, its value in words next to it."""
    groups, names = list(wall.groups), list(dict.fromkeys(line.cell.allocator for line in wall.lines()))
    others = [name for name in names if name != wall.baseline]
    if not others:
        return None
    rows = [(group, name) for group in groups for name in others]
    figure, cells = grid(1, 1, size=(8.0, 1.2 + 0.2 * len(rows) + 0.12 * len(groups)))
    axes = cells[0][0]
    places, labels, limits = [], [], [1.0]
    for index, (group, name) in enumerate(rows):
        line = next((one for one in wall.groups[group] if one.cell.allocator == name), None)
        y = -(index + 0.6 * groups.index(group))
        places.append(y)
        labels.append(f"{label(group)}   {name}" if name == others[0] else name)
        shade = colour(names, name)
        if line is None or line.comparison is None:
            axes.text(1.01, y, "no data", transform=axes.get_yaxis_transform(), fontsize=7, va="center")
            continue
        ratio, low, high = line.comparison.interval
        limits.append(ratio)
        if math.isfinite(high):
            axes.plot([low, high], [y, y], color=shade, linewidth=2)
            limits += [max(low, ratio / 10), min(high, ratio * 10)]
        filled = line.verdict not in (verdicts.NO_DIFFERENCE, verdicts.UNCLEAR)
        axes.plot(ratio, y, "o", color=shade, markerfacecolor=shade if filled else "white", markersize=5)
        value = interval(line.comparison.interval)
        axes.text(1.01, y, value, transform=axes.get_yaxis_transform(), fontsize=7, va="center")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    span = max(max(limits) / min(limits), 1.02) ** 0.08
    axes.set_xlim(min(limits) / span, max(limits) * span)
    axes.set_ylim(places[-1] - 0.8, 0.8)
    plain_ticks(axes.xaxis)
    axes.set_yticks(places, labels, fontsize=7)
    axes.set_xlabel(
        f"{wall.quantity} / {wall.baseline}, {100 * wall.confidence:g} % intervals; filled: differs",
        fontsize=8,
    )
    figure.suptitle(f"Time over {wall.baseline}'s: left of the line is faster")
    return figure


def scaling_of_ratios(wall: Analysis) -> Any:
    """Time over the baseline's, by threads: lines that fall belong to allocators that scale better."""
    names = list(dict.fromkeys(line.cell.allocator for line in wall.lines()))
    others = [name for name in names if name != wall.baseline]
    series = list(dict.fromkeys((group[0], group[2], group[3]) for group in wall.groups))
    counts = sorted({group[1] for group in wall.groups})
    if len(counts) < 2 or not others:
        return None
    columns = min(3, len(series))
    figure, cells = grid(
        -(-len(series) // columns),
        columns,
        size=(1.5 + 2.8 * columns, 0.8 + 2.2 * -(-len(series) // columns)),
    )
    for at, (program, load, parameters) in enumerate(series):
        axes = cells[at // columns][at % columns]
        for name in others:
            points_ = []
            for count in counts:
                lines = wall.groups.get((program, count, load, parameters), [])
                line = next((one for one in lines if one.cell.allocator == name), None)
                if line is not None and line.comparison is not None:
                    points_.append((count, line.comparison.interval))
            x = [count for count, _ in points_]
            y = [one.ratio for _, one in points_]
            known = all(math.isfinite(one.high) for _, one in points_)
            error = [
                [one.ratio - one.low for _, one in points_],
                [one.high - one.ratio for _, one in points_],
            ]
            axes.errorbar(x, y, yerr=error if known and points_ else None, fmt="o-", markersize=3, capsize=2,
                          color=colour(names, name), label=name)  # fmt: skip
        axes.axhline(1.0, color="black", linewidth=0.7)
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_title(label((program, None, load, parameters)), fontsize=8)
        axes.set_xlabel("threads", fontsize=7)
        axes.set_ylabel(f"time / {wall.baseline}", fontsize=7)
    for at in range(len(series), cells.size):
        cells[at // columns][at % columns].set_visible(False)
    figure.legend(
        *cells[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(others), fontsize=7
    )
    figure.suptitle("Who scales better: lines that fall (lower is better)")
    return figure


def memory_against_time(wall: Analysis, memory: Analysis) -> Any:
    """Peak memory against time, both over the baseline: left is faster, below is smaller."""
    names = list(dict.fromkeys(line.cell.allocator for line in wall.lines()))
    groups = list(wall.groups)
    if len(names) < 2:
        return None
    markers = "os^Dv<>PX*hpd8H1234"
    figure, cells = grid(1, 1, size=(7.0, 5.0))
    axes = cells[0][0]
    for i, group in enumerate(groups):
        by_name = {line.cell.allocator: line.comparison for line in memory.groups[group]}
        for line in wall.groups[group]:
            of_memory = by_name.get(line.cell.allocator)
            if line.comparison is None or of_memory is None:
                continue
            (x, x_low, x_high), (y, y_low, y_high) = line.comparison.interval, of_memory.interval
            if math.isfinite(x_high) and math.isfinite(y_high):
                error = {"xerr": [[x - x_low], [x_high - x]], "yerr": [[y - y_low], [y_high - y]]}
            else:
                error = {}
            shade = colour(names, line.cell.allocator)
            axes.errorbar(
                x,
                y,
                **error,
                fmt=markers[i % len(markers)],
                color=shade,
                elinewidth=0.7,
                markersize=5,
                alpha=0.8,
            )
    axes.axvline(1.0, color="black", linewidth=0.7)
    axes.axhline(1.0, color="black", linewidth=0.7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.set_xlabel(f"time / {wall.baseline}")
    axes.set_ylabel(f"peak memory / {wall.baseline}")
    handles = [
        axes.plot([], [], "s", color=colour(names, n), label=n)[0] for n in names if n != wall.baseline
    ]
    handles += [
        axes.plot([], [], markers[i % len(markers)], color="grey", label=label(group))[0]
        for i, group in enumerate(groups)
    ]
    figure.legend(handles=handles, loc="outside right upper", fontsize=7)
    figure.suptitle("Memory against time: best is the lower left")
    return figure


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
    figure, drawn = grid(len(rows), len(threads), share_y=share_y)
    for i, (program, parameters, load) in enumerate(rows):
        for j, count in enumerate(threads):
            group = (program, count, load, parameters)
            draw(drawn[i][j], {cell.allocator: found for cell, found in cells.items() if cell.group == group})
            drawn[i][j].set_title(
                f"{label((program, None, 1, parameters))}: {threads_text(count)}, load {load}", fontsize=8
            )
        drawn[i][0].set_ylabel(y_label, fontsize=7)
    figure.suptitle(title)
    return figure
