# SPDX-License-Identifier: Apache-2.0
"""The picture of a trace: live bytes against time."""

from __future__ import annotations

from typing import Any

from memoir._core import Lives, Trace
from memoir.base.quantities import bytes_text
from memoir.views.figures import bytes_axis, new_figure, to_bytes, without_box
from memoir.views.trace_summary import load_of

_POINTS = 2000  # stretches of time: more than a picture has columns


def draw_load(trace: Trace, summary: dict[str, Any], kind: str, *, title: str = "") -> bytes:
    """A `png`, `svg` or `pdf`; `summary` is summarize(trace). The same trace gives the same bytes."""
    figure = new_figure(9, 4)
    curve = load_of(trace.events, Lives(trace), _POINTS)["curve"]
    axes = figure.add_subplot()
    begin, step = curve["begin_ns"], curve["step_ns"]
    scale, unit = _time_unit(step * _POINTS)
    held = [*curve["bytes"], *curve["bytes"][-1:]]  # the last stretch ends somewhere, too
    times = [index * step / scale for index in range(len(held))]
    axes.fill_between(times, held, step="post", color="#3b6ea8", alpha=0.85, linewidth=0)
    for index, row in enumerate(summary["passes"]):
        left = (row["begin_ns"] - begin) / scale
        if index % 2 == 0:
            axes.axvspan(left, left + row["duration_ns"] / scale, color="#000000", alpha=0.06, linewidth=0)
        if len(summary["passes"]) <= 12:
            axes.annotate(f"pass {row['pass']}", (left, 1.01), xycoords=("data", "axes fraction"), fontsize=7)
    peak = summary["peak"]
    if peak["event"] is not None:
        axes.axhline(peak["bytes"], color="#b03a2e", linewidth=0.8, linestyle="--")
        at = (peak["time_ns"] - begin) / scale
        axes.plot([at], [peak["bytes"]], "o", color="#b03a2e", markersize=4)
        axes.annotate(
            f"peak {bytes_text(peak['bytes'])}, {peak['objects']:,} object{'s' * (peak['objects'] != 1)}",
            (at, peak["bytes"]),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right" if times and at > times[-1] / 2 else "left",
            color="#b03a2e",
            fontsize=8,
        )
    axes.set_xlabel(f"time in {unit}")
    axes.set_ylabel("live bytes")
    bytes_axis(axes.yaxis, peak["bytes"])
    axes.set_ylim(0, max(peak["bytes"], 1) * 1.1)
    axes.margins(x=0)
    without_box(axes)
    figure.suptitle(title, fontsize=10)
    return to_bytes(figure, kind)


def _time_unit(nanoseconds: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "seconds"), (1e6, "milliseconds"), (1e3, "microseconds")):
        if nanoseconds >= 2 * scale:
            return scale, unit
    return 1.0, "nanoseconds"
