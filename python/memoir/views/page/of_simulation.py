# SPDX-License-Identifier: Apache-2.0
"""The page of a simulation: what each policy took, and where two of them put every object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memoir._core import Error, Trace
from memoir.base.quantities import bytes_text
from memoir.views.page.document import Page
from memoir.views.page.objects import ObjectSet, objects_of
from memoir.views.page.panels import Fact, HeapMaps, Lines, Map, Series, Table, Text
from memoir.views.page.placed import placed_map, room_of
from memoir.views.simulation_table import fidelity_lines, is_reproduction, oom_line

_MOST_MAPS = 3  # panels with maps: of so many traces and devices

Group = tuple[str, Sequence[dict[str, Any]]]


def simulation_page(groups: Sequence[Group], left_out: str, open_trace: Callable[[str], Trace]) -> Page:
    """A table, curves and two maps for each (title, results) of one trace and device. `open_trace`: by its path."""
    title = "What these allocators would have taken"
    maps = [
        _maps(results, open_trace, f" ({Path(name).name})" if len(groups) > 1 else "")
        for name, results in groups[:_MOST_MAPS]
    ]
    facts = _facts(groups[0][1], maps[0]) if len(groups) == 1 else []
    page = Page(title, subtitle=" · ".join(Path(name).name for name, _ in groups[:6]), facts=facts)
    for number, (name, results) in enumerate(groups):
        named = f" ({Path(name).name})" if len(groups) > 1 else ""
        page.add(_table(results, named), lines_of(results, named))
        page.add(*maps[number : number + 1])
    return page.add(Text("What is left out?", [left_out]))


def _facts(results: Sequence[dict[str, Any]], shown: HeapMaps | None) -> list[Fact]:
    floor = results[0]["floor"]
    facts = [Fact("Floor", bytes_text(floor), "the most bytes live at once: no allocator holds less")]
    completed = [result for result in results if result["completed"]]
    if completed:
        best = min(completed, key=lambda result: result["peak_reserved"])
        over = f"{best['peak_reserved'] / floor:.3f} x the floor" if floor else ""
        facts.append(
            Fact("Least held", bytes_text(best["peak_reserved"]), " ".join([best["policy"] + ":", over]))
        )
    if shown is not None:
        facts += [fact for one in shown.maps if (fact := room_fact(one, shown.objects))]
    failed = len(results) - len(completed)
    if any(result["cap"] is not None for result in results):
        facts.append(Fact("Out of memory", f"{failed} of {len(results)}", "policies under the cap"))
    return facts


def room_fact(one: Map, objects: ObjectSet) -> Fact | None:
    """The largest request that still fitted when a map's allocator held most."""
    room = room_of(one, objects)
    if room is None:
        return None
    ratio = (
        f"{room.held / room.live:.3f} x the {bytes_text(room.live)} live" if room.live else "nothing is live"
    )
    note = f"of {bytes_text(room.free)} free at event {room.tick:,}, when {bytes_text(room.held)} were held, {ratio}"
    policy = one.name.partition(":")[0]
    return Fact(
        "Largest request that still fits" + f", {policy}" * bool(policy), bytes_text(room.largest), note
    )


def _table(results: Sequence[dict[str, Any]], named: str) -> Table:
    started = any(result["start"] for result in results)
    heads = (
        "policy",
        *["start"] * started,
        "cap",
        "held",
        "held / floor",
        "held / live at its peak",
        "driver calls",
        "ms of them",
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
                f"{result['device_calls']['driver']:,}",
                f"{result['driver_ms']:,.2f}",
                f"{times['mean']:,.0f}" if times else "",
                f"at event {oom['event']:,}" if oom else "no",
            )
        )
    lines = [fidelity_lines(result) for result in results if is_reproduction(result)]
    lines += [oom_line(result) for result in results if result["out_of_memory"]]
    return Table(f"Which allocator takes least{named}?", heads, rows, note=" ".join(lines))


def lines_of(results: Sequence[dict[str, Any]], named: str) -> Lines:
    longest = max(results, key=lambda result: len(result["timeline"]["event"]))["timeline"]
    series = [Series("live", *_to_the_end(longest, "live"), "area")]
    failed: dict[float, list[str]] = {}
    for result in sorted(results, key=lambda one: -one["peak_reserved"]):
        ratio = "" if result["reserved_ratio"] is None else f" ({result['reserved_ratio']:.3f} x floor)"
        cap = "" if result["cap"] is None else f", cap {bytes_text(result['cap'])}"
        name = f"{result['policy']}{cap}{ratio}"
        series.append(Series(name, *_to_the_end(result["timeline"], "reserved"), "steps"))
        if result["out_of_memory"]:
            failed.setdefault(float(result["out_of_memory"]["event"]), []).append(result["policy"])
    caps = sorted({result["cap"] for result in results if result["cap"] is not None})
    marks = [(at, who[0] if len(who) == 1 else f"{len(who)} policies") for at, who in sorted(failed.items())]
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
