# SPDX-License-Identifier: Apache-2.0
"""What the pictures of a bench have in common."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from memoir.bench import statistics
from memoir.views.figures import import_matplotlib, show_names

_TO_FILES = {"svg.fonttype": "none", "svg.hashsalt": "memoir"}
# Okabe & Ito's colours: told apart by colour-blind readers too
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def to_bytes(figure: Any, kind: str) -> bytes:
    """A figure as SVG (text stays text) or PNG; the same figure gives the same bytes."""
    matplotlib = import_matplotlib()
    out = io.BytesIO()
    with matplotlib.rc_context(_TO_FILES), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of glyphs and layouts: nothing that a reader can act on
        show_names(figure)
        figure.savefig(out, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else {})
    return out.getvalue()


def grid(rows: int, columns: int, share_y: bool = False, size: tuple[float, float] | None = None) -> Any:
    matplotlib = import_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=size or (1.2 + 2.4 * columns, 0.6 + 1.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)
    return figure, grid


def points(axes: Any, at: float, values: statistics.Numbers) -> None:
    """Every single run next to its bar's middle: outliers are shown, not dropped."""
    spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(at + spread, values, ".", color="black", markersize=2, alpha=0.6)


def plain_ticks(axis: Any) -> None:
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


def threads_text(count: int) -> str:
    return f"{count} thread" + "s" * (count != 1)


def colour(names: list[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]
