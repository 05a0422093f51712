# SPDX-License-Identifier: Apache-2.0
"""What pictures have in common. matplotlib is imported with the first of them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memoir._core import Error
from memoir.base.quantities import bytes_text, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def import_matplotlib() -> Any:
    """The module. Raises Error, which says how to get it, where it is not."""
    is_first = "matplotlib" not in sys.modules
    with _without_settings_of_the_folder() if is_first else contextlib.nullcontext():
        try:
            import matplotlib
        except ImportError:
            raise Error("pictures need matplotlib: pip install 'memoir-alloc[plot]'") from None
    if is_first:
        matplotlib.rcdefaults()
    return matplotlib


@contextlib.contextmanager
def _without_settings_of_the_folder() -> Iterator[None]:
    """As it is imported, matplotlib reads a `matplotlibrc` of the current folder, which may be a stranger's: a pipe, or
    settings that run TeX. It asks first whether there is one."""
    exists = os.path.exists
    os.path.exists = lambda path: path != "matplotlibrc" and exists(path)
    try:
        yield
    finally:
        os.path.exists = exists


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches. Raises Error without matplotlib."""
    import_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def to_bytes(figure: Figure, kind: str) -> bytes:
    """A `png`, `svg` or `pdf`; the same figure gives the same bytes."""
    import matplotlib

    show_names(figure)
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "memoir"}):
        figure.savefig(out, format=kind, metadata=_NO_DATE.get(kind, {}))
    return out.getvalue()


def show_names(figure: Figure) -> None:
    """Names of strangers: printable, letter by letter, and not as formulas."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogFormatter, ScalarFormatter

    formulas: set[Text] = set()  # powers of ten
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        of_ticks, labels = axis.get_major_formatter(), axis.get_ticklabels()  # which makes them
        if isinstance(of_ticks, LogFormatter):
            formulas.update(labels)
        elif not isinstance(of_ticks, ScalarFormatter):
            axis.set_major_formatter(FuncFormatter(lambda at, place, of=of_ticks: printable(of(at, place))))
    for text in figure.findobj(Text):
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
        text.set_parse_math(text in formulas)


def bytes_axis(axis: Axis, top: int, marks: int = 4) -> None:
    """Round numbers in KiB and MiB (powers of two), at least `marks` of them up to `top` bytes."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    axis.set_major_locator(MultipleLocator(2 ** max((int(top) // marks).bit_length() - 1, 0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value)))


def counts_axis(axis: Axis, marks: int | None = None) -> None:
    """Whole numbers with commas: ticks, events."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(marks, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def without_box(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
