# SPDX-License-Identifier: Apache-2.0
"""The page of a simulation: what each policy took, and where two of them put every object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memoir._core import Error, Trace
from memoir.base.quantities import bytes_text
from memoir.views.page.document import Page
from memoir.views.page.objects import objects_of
from memoir.views.page.panels import Fact, HeapMaps, Lines, Map, Series, Table, Text
from memoir.views.page.placed import placed_map
from memoir.views.simulation_table import fidelity_lines, is_reproduction, oom_line

_MOST_MAPS = 3  # panels with maps: of so many traces and devices

Group = tuple[str, Sequence[dict[str, Any]]]


def simulation_page(groups: Sequence[Group], left_out: str, open_trace: Callable[[str], Trace]) -> Page:
    """A table, curves and two maps for each (title, results) of one trace and device. `open_trace`: by its path."""
    title = "What these allocators would have taken"
    facts = _facts(groups[0][1]) if len(groups) == 1 else []
    page = Page(title, subtitle=" · ".join(Path(name).name for name, _ in groups[:6]), facts=facts)
    for number, (name, results) in enumerate(groups):
        named = f" ({Path(name).name})" if len(groups) > 1 else ""
        page.add(_table(results, named), _lines(results, named))
        if number < _MOST_MAPS:
            page.add(_maps(results, open_trace, named))
    return page.add(Text("What is left out?", [left_out]))


def _facts(results: Sequence[dict[str, Any]]) -> list[Fact]:
    floor = results[0]["floor"]
    facts = [Fact("Floor", bytes_text(floor), "the most bytes live at once: no allocator holds less")]
    completed = [result for result in results if result["completed"]]
    if completed:
        best = min(completed, key=lambda result: result["peak_reserved"])
        over = f"{best['peak_reserved'] / floor:.3f} x the floor" if floor else ""
        facts.append(
            Fact("Least held", bytes_text(best["peak_reserved"]), " ".join([best["policy"] + ":", over]))
        )
    failed = len(results) - len(completed)
    if any(result["cap"] is not None for result in results):
        facts.append(Fact("Out of memory", f"{failed} of {len(results)}", "policies under the cap"))
    return facts


def _table(results: Sequence[dict[str, Any]], named: str) -> Table:
    started = any(result["start"] for result in results)
    heads = (
        "policy",
        *["start"] * started,
        "cap",
        "held",
        "held / floor",
        "held / live at its peak",
        "device calls",
    )
    heads += ("ns/op", "out of memory")
    rows = []
    for result in sorted(results, key=lambda one: (not one["completed"], one["peak_reserved"])):
        times, oom = result["ns_per_operation"], result["out_of_memory"]
        share = result["fragmentation_at_peak"]
        rows.append(
            (
                result["policy"],
                *([result["start"] or ""] * started),
                "" if result["cap"] is None else bytes_text(result["cap"]),
                bytes_text(result["peak_reserved"]),
                "" if result["reserved_ratio"] is None else f"{result['reserved_ratio']:.4f}",
                f"{1 / (1 - share):.3f}" if share < 1 else "",
                f"{result['device_calls']['all']:,}",
                f"{times['mean']:,.0f}" if times else "",
                f"at event {oom['event']:,}" if oom else "no",
            )
        )
    lines = [fidelity_lines(result) for result in results if is_reproduction(result)]
    lines += [oom_line(result) for result in results if result["out_of_memory"]]
    return Table(f"Which allocator takes least{named}?", heads, rows, note=" ".join(lines))


def _lines(results: Sequence[dict[str, Any]], named: str) -> Lines:
    longest = max(results, key=lambda result: len(result["timeline"]["event"]))["timeline"]
    series = [Series("live", *_to_the_end(longest, "live"), "area")]
    marks = []
    for result in sorted(results, key=lambda one: -one["peak_reserved"]):
        ratio = "" if result["reserved_ratio"] is None else f" ({result['reserved_ratio']:.3f} x floor)"
        cap = "" if result["cap"] is None else f", cap {bytes_text(result['cap'])}"
        name = f"{result['policy']}{cap}{ratio}"
        series.append(Series(name, *_to_the_end(result["timeline"], "reserved"), "steps"))
        if result["out_of_memory"]:
            marks.append((float(result["out_of_memory"]["event"]), result["policy"]))
    caps = sorted({result["cap"] for result in results if result["cap"] is not None})
    levels = [("floor", float(results[0]["floor"])), *(("cap", float(cap)) for cap in caps)]
    return Lines(f"What did each policy hold over time{named}?", "event", series, levels, marks)


def _to_the_end(timeline: dict[str, list[int]], what: str) -> tuple[list[float], list[float]]:
    """The last value lasts one event, or a single one would not be seen."""
    events, values = timeline["event"], timeline[what]
    return ([*events, events[-1] + 1], [*values, values[-1]]) if events else ([], [])


def _maps(
    results: Sequence[dict[str, Any]], open_trace: Callable[[str], Trace], named: str
) -> HeapMaps | None:
    """The policy that held least, next to the one that was asked for first (or the one that held most)."""
    best = min(results, key=lambda one: (not one["completed"], one["peak_reserved"]))
    others = [result for result in results if result is not best]
    torch = next((one for one in others if one["policy"] == "pytorch"), None)
    shown = [best, torch or max(others, key=lambda one: one["peak_reserved"])] if others else [best]
    trace = open_trace(best["trace"])
    objects = objects_of(trace, best["device"])
    maps: list[Map] = []
    for result in shown:
        recorded = ""
        if result["start"] == "recorded" and result["fidelity"]:
            recorded = result["fidelity"]["recorded_policy"]
        name = f"{result['policy']}: {bytes_text(result['peak_reserved'])} held"
        try:
            made = placed_map(
                trace,
                best["device"],
                result["policy"],
                objects,
                name=name,
                cap=result["cap"],
                recorded=recorded,
            )
        except Error:  # the table says what went wrong
            continue
        maps.append(made)
    if not maps or not len(objects):
        return None
    return HeapMaps(
        f"Where would each object lie{named}?",
        objects,
        maps,
        "The policy that held least, next to PyTorch's or the one that held most; their times are linked. Streams and "
        "pools with heaps of their own are drawn one above the other.",
    )
