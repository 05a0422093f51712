# SPDX-License-Identifier: Apache-2.0
"""The heap map: address against time, a rectangle per buffer, the load above (MemoMalloc, appendix 8.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memoir._core import Problem
from memoir.base.quantities import bytes_text
from memoir.views.figures import bytes_axis, counts_axis, new_figure, to_bytes, without_box
from memoir.views.plan_table import above_floor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOAD, _FLOOR, _INK = "#4a5568", "#b03a2e", "#1a202c"
_RASTER = 4000  # rectangles from which on an SVG holds them as an image: it stays small and opens quickly
_OWN_SCALE = 1.6  # an arena this much larger than the smallest would squeeze the others' maps


@dataclass(frozen=True)
class MappedPlan:
    """One map of the picture. Arrays have one element per buffer; sizes in bytes."""

    name: str
    offsets: np.ndarray
    arena_size: int


def load_curve(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(ticks, live bytes from each of them on until the next)."""
    ticks = np.concatenate([problem.lower, problem.upper])
    change = np.concatenate([problem.size.astype(np.int64), -problem.size.astype(np.int64)])
    times, where = np.unique(ticks, return_inverse=True)
    live = np.zeros(len(times), np.int64)
    np.add.at(live, where, change)
    return times, np.cumsum(live)


def draw_heap_maps(
    problem: Problem,
    plans: Sequence[MappedPlan],
    floor: int,
    kind: str,
    *,
    title: str,
) -> bytes:
    """A `png`, `svg` or `pdf` with one map per plan, side by side; `floor` is the smallest possible arena.

    Rectangles are coloured by size class (powers of two). A plan far above the others gets a scale of its
    own, and its title says so. The same input gives the same bytes.
    """
    columns = min(len(plans), 3)
    rows = math.ceil(len(plans) / columns)
    figure = new_figure(10.0 if columns == 1 else 5.2 * columns, 1.6 + 4.0 * rows)
    import matplotlib

    with matplotlib.rc_context({"font.size": 9, "axes.titlesize": 9}):
        figure.suptitle(
            f"{title}\n{len(problem):,} buffers, load {bytes_text(floor)}", fontsize=10, color=_INK
        )
        grid = figure.add_gridspec(rows + 1, columns, height_ratios=[0.28, *[1.0] * rows])
        for column in range(columns):
            _draw_load(figure.add_subplot(grid[0, column]), problem, floor)
        colours = _Colours(problem)
        smallest = min(plan.arena_size for plan in plans)
        shared_top = max(plan.arena_size for plan in plans if plan.arena_size <= smallest * _OWN_SCALE)
        for index, plan in enumerate(plans):
            axes = figure.add_subplot(grid[1 + index // columns, index % columns])
            own = plan.arena_size > shared_top
            _draw_map(axes, problem, plan, floor, colours, plan.arena_size if own else shared_top)
            label = f"{plan.name}: {bytes_text(plan.arena_size)}, {above_floor(plan.arena_size, floor)}"
            axes.set_title(label + (" (own scale)" if own else ""), loc="left", color=_INK)
            if index + columns >= len(plans):
                axes.set_xlabel("tick")
        figure.legend(
            handles=colours.legend(),
            title="size class: bytes from",
            loc="outside lower center",
            ncols=min(12, 4 * columns + 2),
            fontsize=7,
            title_fontsize=7,
            frameon=False,
        )
        return to_bytes(figure, kind)


class _Colours:
    """A colour per size class: the power of two at or below the size."""

    def __init__(self, problem: Problem):
        from matplotlib import colormaps

        self._class = np.floor(np.log2(np.maximum(problem.size, 1).astype(float))).astype(int)
        self._present = np.unique(self._class)
        shades = colormaps["viridis"](np.linspace(0.04, 0.96, max(len(self._present), 1)))
        self._shade = dict(zip(self._present.tolist(), shades, strict=False))

    def of(self, buffers: np.ndarray) -> np.ndarray:
        return np.array([self._shade[value] for value in self._class[buffers].tolist()]).reshape(-1, 4)

    def legend(self) -> list[Any]:
        from matplotlib.patches import Patch

        every = -(-len(self._present) // 12)
        return [
            Patch(color=self._shade[size_class], label=bytes_text(2.0**size_class))
            for size_class in self._present[::every].tolist()
        ]


def _span(problem: Problem) -> tuple[float, float]:
    if len(problem) == 0:
        return 0.0, 1.0
    return float(problem.lower.min()), float(problem.upper.max())


def _draw_load(axes: Axes, problem: Problem, floor: int) -> None:
    times, live = load_curve(problem)
    axes.fill_between(
        times.astype(float), live.astype(float), step="post", color=_LOAD, alpha=0.55, linewidth=0
    )
    axes.axhline(floor, color=_FLOOR, linewidth=0.8, linestyle="--")
    axes.set_xlim(*_span(problem))
    axes.set_ylim(0, max(floor, 1) * 1.15)
    axes.set_ylabel("live bytes")
    without_box(axes)
    counts_axis(axes.xaxis, 5)
    bytes_axis(axes.yaxis, floor, 2)


def _draw_map(
    axes: Axes, problem: Problem, plan: MappedPlan, floor: int, colours: _Colours, top: int
) -> None:
    from matplotlib.collections import PolyCollection

    order = np.argsort(problem.size, kind="stable")[
        ::-1
    ]  # small ones last, so that none is hidden by an edge
    left, right = problem.lower[order].astype(float), problem.upper[order].astype(float)
    low = plan.offsets[order].astype(float)
    high = low + problem.size[order].astype(float)
    around = [(left, low), (left, high), (right, high), (right, low)]
    corners: Any = np.stack([np.stack(corner, axis=1) for corner in around], axis=1)
    count = len(order)
    edge = 0.4 if count <= 400 else 0.15 if count <= _RASTER else 0.0
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=colours.of(order),
            edgecolors="white" if edge else "none",
            linewidths=edge,
            antialiaseds=bool(edge),
            rasterized=count > _RASTER,
        )
    )
    axes.axhline(floor, color=_FLOOR, linewidth=0.8, linestyle="--")
    axes.annotate(
        "load",
        (1.0, floor),
        xycoords=("axes fraction", "data"),
        xytext=(2, -3),
        textcoords="offset points",
        color=_FLOOR,
        fontsize=7,
        annotation_clip=False,
    )
    if plan.arena_size != floor:
        axes.axhline(plan.arena_size, color=_INK, linewidth=0.8)
    axes.set_xlim(*_span(problem))
    axes.set_ylim(0, max(top, 1) * 1.04)
    axes.set_ylabel("address")
    without_box(axes)
    counts_axis(axes.xaxis, 5)
    bytes_axis(axes.yaxis, top, 3)
