# SPDX-License-Identifier: Apache-2.0
"""The picture of a simulation: what each policy held against what was live, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memoir.base.quantities import bytes_text
from memoir.views.figures import bytes_axis, counts_axis, new_figure, to_bytes, without_box

_COLORS = (
    "#b03a2e",
    "#2e7d4f",
    "#8e5ea2",
    "#c77c11",
    "#1f6f78",
    "#7a5230",
    "#54627a",
    "#a23e6d",
    "#5b7f1e",
    "#333333",
)


def draw_simulation(results: Sequence[dict[str, Any]], title: str, kind: str) -> bytes:
    """A `png`, `svg` or `pdf` of results of one trace and device, with timelines, each of which is a line; live bytes
    are the area below them."""
    figure = new_figure(9, 4.5)
    axes = figure.add_subplot()
    longest = max(results, key=lambda result: len(result["timeline"]["event"]))["timeline"]
    axes.fill_between(
        *_to_the_end(longest, "live"), step="post", color="#3b6ea8", alpha=0.35, linewidth=0, label="live"
    )
    for index, result in enumerate(sorted(results, key=lambda result: -result["peak_reserved"])):
        line, color = result["timeline"], _COLORS[index % len(_COLORS)]
        ratio = "" if result["reserved_ratio"] is None else f", {result['reserved_ratio']:.3f}"
        style = "-" if index < len(_COLORS) else "--"
        axes.step(
            *_to_the_end(line, "reserved"),
            where="post",
            color=color,
            linewidth=1,
            linestyle=style,
            label=f"{result['policy']}{ratio}",
        )
        if result["out_of_memory"] and line["event"]:
            axes.plot(
                [result["out_of_memory"]["event"]], [line["reserved"][-1]], "x", color=color, markersize=7
            )
    floor = results[0]["floor"]
    axes.axhline(floor, color="#000000", linewidth=0.6, linestyle=":")
    for cap in sorted({result["cap"] for result in results if result["cap"] is not None}):
        axes.axhline(cap, color="#b03a2e", linewidth=0.8, linestyle="--")
        axes.annotate(
            f"cap {bytes_text(cap)}",
            (0, cap),
            xycoords=axes.get_yaxis_transform(),
            xytext=(4, 2),
            textcoords="offset points",
            fontsize=7,
        )
    top = max(max(result["peak_reserved"] for result in results), floor, 1)
    axes.set_xlabel("event")
    axes.set_ylabel("bytes")
    bytes_axis(axes.yaxis, top)
    counts_axis(axes.xaxis)
    axes.set_ylim(0, top * 1.08)
    axes.margins(x=0)
    without_box(axes)
    figure.legend(
        loc="outside right upper", fontsize=7, frameon=False, title="reserved, / floor", title_fontsize=7
    )
    figure.suptitle(f"Memory that each policy holds of {title} (lower is better)", fontsize=10)
    return to_bytes(figure, kind)


def _to_the_end(timeline: dict[str, list[int]], what: str) -> tuple[list[int], list[int]]:
    """Events and values; the last value lasts one event, or it would not be seen, nor a single one."""
    events, values = timeline["event"], timeline[what]
    return ([*events, events[-1] + 1], [*values, values[-1]]) if events else (events, values)
