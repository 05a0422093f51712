# SPDX-License-Identifier: Apache-2.0
"""The picture of a simulation: what each policy held against what was live, step by step."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memoir.base.quantities import bytes_text
from memoir.views.figures import bytes_axis, counts_axis, new_figure, to_bytes, without_box
from memoir.views.inline_svg import inline_svg
from memoir.views.simulation_table import fidelity_lines, is_reproduction, oom_line

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
    figure.suptitle(title.replace("$", r"\$"), fontsize=10)
    return to_bytes(figure, kind)


def _to_the_end(timeline: dict[str, list[int]], what: str) -> tuple[list[int], list[int]]:
    """Events and values; the last value lasts one event, or it would not be seen, nor a single one."""
    events, values = timeline["event"], timeline[what]
    return ([*events, events[-1] + 1], [*values, values[-1]]) if events else (events, values)


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; } td.bad { color: #a03000; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15em .9em .15em 0; text-align: right; white-space: nowrap; font-size: .88em; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 1px solid #888; font-weight: 600; }
figure { margin: 1em 0; } figure svg { max-width: 100%; height: auto; } p.note { color: #555; font-size: .88em; }
"""


def simulation_page(groups: Sequence[tuple[str, Sequence[dict[str, Any]]]], left_out: str) -> str:
    """One page that opens with no network: a table and a picture for each (title, results)."""
    parts = ['<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>memoir simulate</title>']
    parts.append(f"<style>{_STYLE}</style></head><body><h1>What these allocators would have taken</h1>")
    for number, (title, results) in enumerate(groups, 1):
        parts.append(f"<h2>{html.escape(Path(title).name)}</h2>")
        started = any(result["start"] for result in results)
        heads = (
            "policy",
            *["start"] * started,
            "cap",
            "reserved",
            "/ floor",
            "at peak",
            "mean",
            "device calls",
            "ns/op",
            "out of memory",
        )
        parts.append(
            '<div class="scroll"><table><tr>' + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
        )
        for result in sorted(results, key=lambda result: (not result["completed"], result["peak_reserved"])):
            parts.append(_row(result))
        parts.append("</table></div>")
        parts += [
            f'<p class="note">{html.escape(fidelity_lines(r))}</p>' for r in results if is_reproduction(r)
        ]
        parts += [f'<p class="note">{html.escape(oom_line(r))}</p>' for r in results if r["out_of_memory"]]
        parts.append(f"<figure>{inline_svg(draw_simulation(results, '', 'svg'), number)}</figure>")
    parts.append(f'<p class="note">{html.escape(left_out)}</p></body></html>')
    return "\n".join([*parts, ""])


def _row(result: dict[str, Any]) -> str:
    times, oom = result["ns_per_operation"], result["out_of_memory"]
    cells = [
        html.escape(result["policy"]),
        *([result["start"]] if result["start"] else []),
        "" if result["cap"] is None else bytes_text(result["cap"]),
        bytes_text(result["peak_reserved"]),
        "" if result["reserved_ratio"] is None else f"{result['reserved_ratio']:.4f}",
        f"{100 * result['fragmentation_at_peak']:.1f} %",
        f"{100 * result['fragmentation_mean']:.1f} %",
        f"{result['device_calls']['all']:,}",
        f"{times['mean']:,.0f}" if times else "",
        f"at event {oom['event']:,}" if oom else "no",
    ]
    bad = ' class="bad"'
    return (
        "<tr>"
        + "".join(f"<td{bad if oom and i == 8 else ''}>{c}</td>" for i, c in enumerate(cells))
        + "</tr>"
    )
