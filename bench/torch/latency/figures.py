# SPDX-License-Identifier: Apache-2.0
"""The pictures: the thesis's Figure 4.1 with memory next to it, concurrent callers, and both ends at once."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from memoir.bench.results import write_whole

from latency.summary import CellSummary, Summary
from latency.variants import CANDIDATE, REFERENCE, VARIANTS

_THREAD_COLOURS = ("#0b6e99", "#d1495b", "#3d8f5f", "#8a5fb0")
_COLOURS = dict(
    zip(
        VARIANTS,
        (
            "#555555",
            "#9a9a9a",
            "#e08e0b",
            "#d1495b",
            "#a83279",
            "#3d8f5f",
            "#7a5c3e",
            "#0b6e99",
            "#c0c0c0",
            "#b09070",
            "#2f4b7c",
            "#66a0c0",
        ),
        strict=True,
    )
)
_COLUMNS = 4
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "legend.frameon": False,
}


def figures(summary: Summary, folder: Path) -> list[Path]:
    """Draws every picture for which there are data into `folder`; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    made = []
    with pyplot.rc_context(_STYLE):
        for name, draw in DRAWINGS:
            figure = draw(pyplot, summary)
            if figure is None:
                continue
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=140, bbox_inches="tight")
            pyplot.close(figure)
            write_whole(folder / f"{name}.png", drawn.getvalue())
            made.append(folder / f"{name}.png")
    return made


def _size(cell: CellSummary) -> tuple[int, int]:
    """Orders inputs by their size; equal ones by batch."""
    return cell.key.batch * cell.key.side**2, cell.key.batch


def _input(cell: CellSummary) -> str:
    return f"{cell.key.batch}×{cell.key.side}"


def _grid(pyplot: Any, nets: list[str], title: str) -> tuple[Any, dict[str, Any]]:
    rows, columns = math.ceil(len(nets) / _COLUMNS), min(len(nets), _COLUMNS)
    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(2.9 * columns + 0.6, 2.1 * rows + 0.7),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(nets) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figure, dict(zip(nets, axes.flat, strict=False))


def _panels(
    pyplot: Any, cells: list[CellSummary], title: str
) -> tuple[Any, dict[str, Any], dict[str, list[str]]]:
    """One panel per network with its inputs, smallest first, along x."""
    nets = list(dict.fromkeys(cell.key.net for cell in cells))
    figure, axes = _grid(pyplot, nets, title)
    inputs = {}
    for net in nets:
        mine = sorted((cell for cell in cells if cell.key.net == net), key=_size)
        inputs[net] = list(dict.fromkeys(map(_input, mine)))
        axes[net].set_title(net)
        axes[net].set_xticks(range(len(inputs[net])), inputs[net], rotation=45 if len(inputs[net]) > 4 else 0)
    return figure, axes, inputs


def _ratio_by_size(pyplot: Any, summary: Summary) -> Any:
    """The thesis's Figure 4.1: latency over its jemalloc's against input size, a line per thread count."""
    cells = [cell for cell in summary.cells if REFERENCE in cell.comparisons and cell.key.callers == 1]
    if not cells:
        return None
    title = (
        f"Latency of {summary.candidate} / {REFERENCE} by input (batch×side), 95 % intervals; lower is better"
    )
    figure, axes, inputs = _panels(pyplot, cells, title)
    threads = sorted({cell.key.threads for cell in cells})
    for net, axis in axes.items():
        axis.axhline(1.0, color="#333333", linewidth=0.8)
        for index, count in enumerate(threads):
            mine = sorted(
                (cell for cell in cells if (cell.key.net, cell.key.threads) == (net, count)), key=_size
            )
            ratios = [cell.comparisons[REFERENCE].interval for cell in mine]
            errors = [[r.ratio - r.low for r in ratios], [r.high - r.ratio for r in ratios]]
            axis.errorbar(
                [inputs[net].index(_input(cell)) for cell in mine],
                [r.ratio for r in ratios],
                yerr=errors,
                marker="o",
                markersize=3.5,
                linewidth=1.3,
                capsize=2,
                color=_THREAD_COLOURS[index % len(_THREAD_COLOURS)],
                label=f"{count} thread{'s' * (count > 1)}",
            )
    highest = max(cell.comparisons[REFERENCE].interval.ratio for cell in cells)
    next(iter(axes.values())).set_ylim(0.0, 1.2 * max(1.0, highest))  # a wild interval may leave the picture
    _legend(figure, next(iter(axes.values())))
    return figure


def _memory_by_size(pyplot: Any, summary: Summary) -> Any:
    """Next to Figure 4.1: each allocator's peak anonymous memory over the smallest of the others'."""
    fewest = min((cell.key.threads for cell in summary.cells), default=1)
    cells = [
        cell
        for cell in summary.cells
        if cell.key.callers == 1 and cell.key.threads == fewest and cell.smallest_other is not None
    ]
    if not cells:
        return None
    title = (
        f"Peak memory / the smallest of the others' ({fewest} thread{'s' * (fewest > 1)}); lower is better"
    )
    figure, axes, inputs = _panels(pyplot, cells, title)
    names = [name for name in VARIANTS if any(name in cell.variants for cell in cells)]
    for net, axis in axes.items():
        axis.axhline(1.0, color="#333333", linewidth=0.8)
        for name in names:
            mine = sorted((cell for cell in cells if cell.key.net == net and _sized(cell, name)), key=_size)
            axis.plot(
                [inputs[net].index(_input(cell)) for cell in mine],
                [_over_smallest(cell, name) for cell in mine],
                marker="o",
                markersize=3,
                linewidth=2.2 if name == summary.candidate else 1.0,
                color=_COLOURS[name],
                label=name,
                zorder=3 if name == summary.candidate else 2,
            )
    _legend(figure, next(iter(axes.values())))
    return figure


def _callers(pyplot: Any, summary: Summary) -> Any:
    """Latency against the number of concurrent callers, a line per allocator, a panel per input."""
    groups: dict[str, list[CellSummary]] = {}
    for cell in summary.cells:
        if cell.key.threads == 1:
            groups.setdefault(f"{cell.key.net} {_input(cell)}", []).append(cell)
    groups = {name: sorted(cells, key=lambda cell: cell.key.callers) for name, cells in groups.items()}
    groups = {name: cells for name, cells in groups.items() if cells[-1].key.callers > 1}
    if not groups:
        return None
    figure, axes = _grid(
        pyplot, list(groups), f"Median latency by concurrent callers / {summary.candidate}'s; lower is better"
    )
    for name, cells in groups.items():
        axis = axes[name]
        axis.set_title(name)
        axis.set_xlabel("callers")
        axis.set_xticks([cell.key.callers for cell in cells])
        for variant in VARIANTS:
            mine = [cell for cell in cells if variant in cell.variants and summary.candidate in cell.variants]
            if mine:
                axis.plot(
                    [cell.key.callers for cell in mine],
                    [
                        cell.variants[variant].median_ms / cell.variants[summary.candidate].median_ms
                        for cell in mine
                    ],
                    marker="o",
                    markersize=3,
                    linewidth=2.2 if variant == summary.candidate else 1.0,
                    color=_COLOURS[variant],
                    label=variant,
                )
    _legend(figure, next(iter(axes.values())))
    return figure


def _both_ends(pyplot: Any, summary: Summary) -> Any:
    """Speed against memory: a dot is one cell under one allocator, relative to the best of that cell."""
    points: dict[str, list[tuple[float, float]]] = {}
    for cell in summary.cells:
        sized = {name: one for name, one in cell.variants.items() if one.intermediates}
        if len(sized) < 2:
            continue
        fastest = min(one.median_ms for one in sized.values())
        smallest = min(one.intermediates for one in sized.values())
        for name, one in sized.items():
            points.setdefault(name, []).append((one.median_ms / fastest, one.intermediates / smallest))
    if not points:
        return None
    figure, axis = pyplot.subplots(figsize=(6.2, 4.6), layout="constrained")
    for name in (name for name in VARIANTS if name in points):
        times, sizes = zip(*points[name], strict=True)
        axis.scatter(times, sizes, s=12, alpha=0.45, color=_COLOURS[name], linewidths=0)
        centre = [math.exp(sum(map(math.log, values)) / len(values)) for values in (times, sizes)]
        mark = "D" if name == CANDIDATE else "o"
        axis.scatter(
            *centre, s=90, marker=mark, color=_COLOURS[name], edgecolors="white", label=name, zorder=4
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter("{x:g}")
    axis.set_xlabel("median latency / fastest allocator of the cell")
    axis.set_ylabel("peak memory of a pass / smallest of the cell")
    axis.set_title("Both ends at once: best is the lower left corner (large marks: geometric means)")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _sized(cell: CellSummary, name: str) -> bool:
    return name in cell.variants and cell.variants[name].peak_anonymous is not None


def _over_smallest(cell: CellSummary, name: str) -> float:
    return cell.variants[name].peak_anonymous / cell.variants[cell.smallest_other].peak_anonymous


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 8))


DRAWINGS = (  # file name, what draws it, in the order of the report
    ("figure_4_1", _ratio_by_size),
    ("memory_by_size", _memory_by_size),
    ("callers", _callers),
    ("both_ends", _both_ends),
)
